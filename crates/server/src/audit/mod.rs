//! The audit trail: what the engine decided and what operators changed, line by line.
//!
//! | file | is |
//! |---|---|
//! | `entry` | one line, and how an engine's step becomes one |
//! | `trail` | the bounded queue between the engine and a sink; histories and live streams |
//! | `sink`, `file` | where the lines go |
//! | `recent`, `counts` | what is kept in memory |
//! | `words` | the words for what events tell |

mod counts;
mod entry;
mod file;
mod recent;
mod sink;
mod trail;
pub(crate) mod words;

pub use counts::Count;
pub use entry::{ERASED, Entry};
pub use file::{FileConfig, FileSink, Sync};
pub use sink::{History, Nowhere, Sink};
pub use trail::{Draft, NotWritten, Trail, TrailConfig};
