//! Duplicates in streams and replicas, discarded in constant time.

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

pub use gate::{Batch, FenceError, Gate, Limits, Snapshot, Ticket, Verdict};
pub use journal::{Fsync, JournalError};
pub use key::{Epoch, IdempotencyKey, KeySecret, SeqNo, SessionId, ShortSecret};
pub use marks::{Check, DEFAULT_SESSIONS, Mark, MarkError, Order, Progress, SeqNoTracker};
pub use operation::{Operation, Tenant};
pub use window::{DEFAULT_CAPACITY, IdempotencyStore};
