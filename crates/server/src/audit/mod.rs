//! The audit trail: decisions of the engine and changes by operators, as JSON lines.
//!
//! | file | is |
//! |---|---|
//! | `entry` | a line of the trail, and its creation from an engine event |
//! | `trail`, `writer` | the bounded queue between the engine and a sink; its writer |
//! | `sink`, `file`, `files` | the interface of sinks; the sink of JSON lines in files |
//! | `file_config` | the settings of those files |
//! | `chain`, `signing_key`, `verify` | hash chain and signatures that make changes detectable |
//! | `spool`, `replicate` | reading the files from a position; replication to copies |
//! | `postgres`, `nats` | copies in a table and in a stream |
//! | `open` | opening the sink of the configuration |
//! | `recent`, `counts` | the last entries and event counts, in memory |

mod chain;
mod counts;
mod entry;
mod file;
mod file_config;
mod files;
mod nats;
mod open;
mod postgres;
mod recent;
mod replicate;
mod signing_key;
mod sink;
mod spool;
mod trail;
mod verify;
mod writer;

pub use chain::ChainHead;
pub use counts::Count;
pub use entry::{Draft, ERASED, Entry, Link};
#[cfg(test)]
pub(crate) use entry::{PendingEvent, is_audited};
pub use file::FileSink;
pub use file_config::{FileConfig, SyncMode};
pub use nats::{NatsConfig, NatsSink};
pub(crate) use open::open;
pub use postgres::PostgresSink;
pub use replicate::ReplicatedSink;
pub use sink::{AuditHistory, CopyStatus, MemoryOnlySink, Sink};
pub use trail::{AuditWriteError, Trail};
pub use verify::{VerificationBaseline, VerificationReport, verify};
pub use writer::TrailConfig;
