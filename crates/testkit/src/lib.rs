//! Shows that Semel keeps its promise. For development only.
//!
//! The conformance suite for authors of stores is a crate of its own, `semel-conformance`.
//!
//! | module | what it is for |
//! |---|---|
//! | [`bounded`] | a store wrapper that takes smaller answers |
//! | [`broken`] | stores with one bug each, which the suite must catch by name |
//! | [`faulty`] | a store wrapper that fails, delays, loses replies and repeats calls, from a seed |
//! | [`http_proxy`] | a way to an HTTP server that answers wrongly, at an exact request |
//! | [`history`] | records every call and checks the invariants afterwards |
//! | [`private`] | servers that belong to one test, to kill, pause and restart |
//! | [`proxy`] | a way to a server that can be cut at an exact point |
//! | [`reference`](mod@reference) | the protocol written a second time, simply, to compare stores with |
//! | [`simulation`] | the real engine in a world of faults, all of it from one seed |
//! | [`vectors`] | the language-neutral test vectors under `spec/vectors` |
//! | `model` | the protocol as a Stateright model (feature `model`) |

pub mod bounded;
pub mod broken;
pub mod faulty;
pub mod history;
pub mod http_proxy;
#[cfg(feature = "model")]
pub mod model;
pub mod proxy;
pub mod reference;
pub mod simulation;
pub mod vectors;

pub use semel_devservers::private;
