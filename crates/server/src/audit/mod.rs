//! The audit trail: what the engine decided and what operators changed, line by line.
//!
//! | file | is |
//! |---|---|
//! | `entry` | one line, and how an engine's step becomes one |
//! | `trail` | the bounded queue between the engine and a sink; histories and live streams |
//! | `sink`, `file` | where the lines go |
//! | `recent`, `counts` | what is kept in memory |

mod counts;
mod entry;
mod file;
mod recent;
mod sink;
mod trail;

pub use counts::Count;
pub(crate) use entry::breaker;
pub use entry::{ERASED, Entry};
pub use file::{FileConfig, FileSink, Sync};
pub use sink::{History, Nowhere, Sink};
pub use trail::{Draft, NotWritten, Trail, TrailConfig};
