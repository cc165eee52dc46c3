//! What transactional runs of all SQL stores share.

use sqlx::Error;

/// Why a transaction was rolled back. Nothing of it happened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// The server refused to settle or to commit: a constraint, a conflict with another transaction, an earlier
    /// error that the effect passed over.
    #[error("the transaction was refused by the server and rolled back; nothing happened")]
    Refused(#[source] Error),
    /// The effect committed or rolled back by a statement of its own.
    #[error("the effect ended the transaction by itself; leave COMMIT and ROLLBACK to semel")]
    Ended,
    /// The effect is over, and something of it still holds the transaction.
    #[error("the effect did not give its transaction back; don't move it to another task")]
    Kept,
    /// The connection was lost, and the transaction with it.
    #[error(
        "the connection was lost before the commit, and the transaction rolled back; nothing happened"
    )]
    RolledBack,
}
