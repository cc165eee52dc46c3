//! Marks and an inbox in PostgreSQL, moved in the caller's own transaction: the effect and the
//! knowledge of it are committed together or not at all, so that each operation is applied exactly
//! once.

mod inbox;
mod schema;

pub use inbox::{Inbox, InboxAdmission};
pub use schema::{MIGRATIONS, migrate};

/// Why nothing could be said about an operation. Nothing was applied; roll the transaction back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The database refused or could not be reached.
    #[error("the inbox could not be read or written")]
    Database(#[from] sqlx::Error),
    /// A consumer's name has 1 to 128 bytes.
    #[error("a consumer's name has 1 to 128 bytes")]
    Name,
    /// The epoch has ended: whoever asks is not the producer any more.
    #[error("a later epoch has begun; the caller is not the producer any more")]
    Stale,
    /// PostgreSQL counts to 2⁶³ − 1.
    #[error("a sequence number or an epoch is too large")]
    TooLarge,
}
