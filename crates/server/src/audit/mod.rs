//! The audit trail: what the engine decided and what operators changed, line by line.
//!
//! | file | is |
//! |---|---|
//! | `entry` | one line, and how an engine's step becomes one |
//! | `trail` | the bounded queue between the engine and a sink; histories and live streams |
//! | `sink`, `file` | where the lines go |
//! | `spool`, `ship` | reading the files on from a position; copies elsewhere, by that |
//! | `postgres`, `nats` | a table, a stream |
//! | `open` | which of these, as the configuration says |
//! | `recent`, `counts` | what is kept in memory |
//! | `words` | the words for what events tell |

mod counts;
mod entry;
mod file;
mod nats;
mod open;
mod postgres;
mod recent;
mod ship;
mod sink;
mod spool;
mod trail;
pub(crate) mod words;

pub use counts::Count;
pub use entry::{ERASED, Entry};
pub use file::{FileConfig, FileSink, Sync};
pub use nats::{NatsConfig, NatsSink};
pub(crate) use open::open;
pub use postgres::PostgresSink;
pub use ship::{Shipped, Shipping};
pub use sink::{History, Nowhere, Sink};
pub use trail::{Draft, NotWritten, Trail, TrailConfig};
