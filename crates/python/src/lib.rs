//! `semel._native`: the engine and the stores inside a Python process.
//!
//! The Python package has one implementation of workers, leases and errors. It speaks the protocol
//! API, and this module answers the same requests as a sidecar does. The engine, and how it is
//! closed, are those of `semel-embedded`, which the module for Node uses as well.
//!
//! | file | is |
//! |---|---|
//! | `options` | the settings of a store, as Python gives them |
//! | `reply` | replies and errors, as Python gets them |
//! | `store` | the class `Store`: calls that wait, and calls whose end is told to a queue |
//! | `queue` | the class `Queue`: wakes an event loop through a file descriptor |
//!
//! No thread of the runtime ever touches Python, so none can hold or wait for the GIL.

mod options;
#[cfg(unix)]
mod queue;
mod reply;
mod store;

/// The module `semel._native`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[cfg(unix)]
    #[pymodule_export]
    use crate::queue::CompletionQueue;
    #[cfg(unix)]
    #[pymodule_export]
    use crate::store::PyRunningCall;
    #[pymodule_export]
    use crate::store::{KeptMemory, NativeStore};
}
