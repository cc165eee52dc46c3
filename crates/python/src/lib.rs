//! `semel._native`: the engine and the stores inside a Python process.
//!
//! The Python package has one implementation of workers, leases and errors. It speaks the protocol
//! API, and this module answers the same requests as a sidecar does: it calls the sidecar's own
//! router, without a socket. So both ways give the same results and the same problem codes.
//!
//! | file | is |
//! |---|---|
//! | `options` | the settings of a store, as Python gives them |
//! | `engine` | the engine on a runtime of its own; what happens to it after a fork |
//! | `request` | a request to the API, and its reply |
//! | `store` | the class `Store`: calls that wait, and calls whose end is told to a queue |
//! | `queue` | the class `Queue`: wakes an event loop through a file descriptor |
//!
//! No thread of the runtime ever touches Python, so none can hold or wait for the GIL.

mod engine;
mod options;
#[cfg(unix)]
mod queue;
mod request;
mod store;

/// The module `semel._native`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[cfg(unix)]
    #[pymodule_export]
    use crate::queue::CompletionQueue;
    #[cfg(unix)]
    #[pymodule_export]
    use crate::store::RunningCall;
    #[pymodule_export]
    use crate::store::{KeptMemory, NativeStore};
}
