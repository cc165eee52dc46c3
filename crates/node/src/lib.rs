//! The engine and the stores inside a Node process.
//!
//! The TypeScript package has one implementation of workers, leases and errors. It speaks the
//! protocol API, and this module answers the same requests as a sidecar does. The engine and how it
//! is closed are those of `semel-embedded`, which the module for Python uses as well.
//!
//! | file | is |
//! |---|---|
//! | `options` | the settings of a store, as JavaScript gives them |
//! | `store` | the class `Store`, and `open`, which makes one |
//! | `ends` | tells JavaScript what became of calls, through one function for each store |
//!
//! A call is a task on the runtime of the engine, so the event loop never waits. Its end is queued
//! for the thread of JavaScript, of which no other thread touches a value. Each worker thread that
//! loads this module opens stores of its own.

mod ends;
mod options;
mod store;
