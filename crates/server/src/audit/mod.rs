//! The audit trail: what the engine decided and what operators changed, line by line.
//!
//! | file | is |
//! |---|---|
//! | `entry` | one line, and how an engine's step becomes one |
//! | `trail` | the bounded queue between the engine and a sink; histories and live streams |
//! | `sink`, `file`, `files` | where the lines go |
//! | `chain`, `seal`, `verify` | the hashes and signatures that make a change of the files show |
//! | `spool`, `ship` | reading the files on from a position; copies elsewhere, by that |
//! | `postgres`, `nats` | a table, a stream |
//! | `open` | which of these, as the configuration says |
//! | `recent`, `counts` | what is kept in memory |
//! | `words` | the words for what events tell |

mod chain;
mod counts;
mod entry;
mod file;
mod files;
mod nats;
mod open;
mod postgres;
mod recent;
mod seal;
mod ship;
mod sink;
mod spool;
mod trail;
mod verify;
pub(crate) mod words;

pub use chain::{Head, Link};
pub use counts::Count;
pub use entry::{ERASED, Entry};
pub use file::{FileConfig, FileSink, Sync};
pub use nats::{NatsConfig, NatsSink};
pub(crate) use open::open;
pub use postgres::PostgresSink;
pub use ship::{Shipped, Shipping};
pub use sink::{History, Nowhere, Sink};
pub use trail::{Draft, NotWritten, Trail, TrailConfig};
pub use verify::{Expected, Verified, verify};
