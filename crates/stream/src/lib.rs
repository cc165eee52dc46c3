//! Deduplication of streams and replicas, in constant time.
//!
//! A [`SeqNoTracker`] knows every operation that has a sequence number, for all time, by one mark
//! per session. An
//! [`IdempotencyStore`] knows the last operations that have a key. A [`Gate`] puts both in front of
//! whatever applies operations, and records only what was applied.
//!
//! ```
//! use semel_stream::{StreamKey, IdempotencyStore, SeqNo, SessionId};
//!
//! let store = IdempotencyStore::default_capacity();
//! let key = StreamKey::derive(SessionId::named("sensor-7"), SeqNo(1), b"add 5");
//! assert!(store.check_and_record(key), "new: apply it");
//! assert!(!store.check_and_record(key), "a duplicate: skip it");
//! ```
//!
//! | feature | brings |
//! |---|---|
//! | `postgres` | marks and an inbox in the caller's own transaction, and the consumer that uses them: exactly once |
//! | `nats` | consumers of NATS JetStream |
//! | `rabbitmq` | consumers of RabbitMQ |

#[cfg(any(feature = "nats", feature = "postgres", feature = "rabbitmq"))]
pub mod consume;
mod gate;
mod journal;
mod key;
mod lru;
mod marks;
mod operation;
#[cfg(feature = "postgres")]
pub mod postgres;
mod window;

pub use gate::{Batch, FenceError, Gate, GateLimits, GateVerdict, Snapshot, Ticket};
pub use journal::{Fsync, JournalError};
pub use key::{Epoch, KeySecret, SeqNo, SessionId, ShortSecret, StreamKey};
pub use marks::{DEFAULT_SESSIONS, Mark, MarkCheck, MarkError, Order, Progress, SeqNoTracker};
pub use operation::{StreamOperation, Tenant};
pub use window::{DEFAULT_CAPACITY, IdempotencyStore};

/// Compiles the examples of the guide.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/streams.md")]
struct Guide;
