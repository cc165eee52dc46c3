//! Why a transaction was not committed.

use sqlx::Error;

/// Why a transaction was not committed although its effect succeeded. Nothing of it happened,
/// except where
/// [`Self::is_unknown`] says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// The server refused to settle or to commit: a constraint, a conflict with another
    /// transaction, an earlier error that the effect passed over.
    #[error("the transaction was refused by the server and rolled back; nothing happened")]
    Refused(#[source] Error),
    /// The transaction was over before its settlement: the effect committed or rolled back by a
    /// statement of its own, or went on after the server had rolled back. What it wrote may be
    /// committed, so the key is in doubt.
    #[error(
        "the transaction ended before its settlement, and what it wrote may be committed; leave COMMIT and ROLLBACK to semel"
    )]
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

impl TxError {
    /// Whether something of the transaction may have been committed.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Ended)
    }
}
