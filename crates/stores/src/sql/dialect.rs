//! The dialect of a database server: how to send statements, and what its errors mean.

use std::future::Future;
use std::time::Duration;

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::{Database, Error};

/// A database server's way to send statements, and the meaning of its errors.
pub trait Dialect: Send + Sync + 'static {
    /// The driver.
    type Db: Database;
    /// A statement with its arguments.
    type Bound: Send;

    /// Sends a statement. `wants_rows` says whether rows are read or counted.
    fn send(
        connection: &mut Connection<Self>,
        statement: Self::Bound,
        wants_rows: bool,
    ) -> impl Future<Output = Result<Reply<Self>, Error>> + Send;

    /// Sends text without arguments, of one statement or several.
    fn script(
        connection: &mut Connection<Self>,
        text: &str,
    ) -> impl Future<Output = Result<Vec<Row<Self>>, Error>> + Send;

    /// Sets up a new session.
    fn set_up(
        _connection: &mut Connection<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether the connection is broken: the last statement may have been executed.
    fn is_broken(error: &Error) -> bool;

    /// How many times to retry after this error, and the pause before each retry.
    fn resends(error: &Error) -> (usize, Duration);

    /// The kind of this error, and whether the call may have changed something. `None` if the error
    /// isn't the server's.
    fn classify(error: &Error) -> Option<(StoreErrorKind, Certainty)>;

    /// Advice for common mistakes.
    fn hint(error: &Error) -> Option<&'static str>;
}

/// A connection of a dialect.
pub(crate) type Connection<D> = <<D as Dialect>::Db as Database>::Connection;
/// A row of a dialect.
pub(crate) type Row<D> = <<D as Dialect>::Db as Database>::Row;

/// The reply to a statement.
pub struct Reply<D: Dialect + ?Sized> {
    /// The rows, if they were requested.
    pub rows: Vec<Row<D>>,
    /// How many rows were written, if the server counts them.
    pub affected: u64,
    /// The value of `LAST_INSERT_ID`, if the server has it.
    pub last_id: u64,
}

impl<D: Dialect> Reply<D> {
    /// The reply to a statement that returns rows.
    pub const fn rows(rows: Vec<Row<D>>) -> Self {
        Self {
            rows,
            affected: 0,
            last_id: 0,
        }
    }
}

/// The store error for a statement that was sent. A statement that the server rejected changed
/// nothing. No reply, or a session that was terminated, leaves the outcome unknown: the commit may
/// have been written before.
pub(crate) fn store_error<D: Dialect>(error: Error) -> StoreError {
    let (kind, certainty) = classify::<D>(&error);
    explained::<D>(kind, certainty, error)
}

/// The store error for a statement that was never sent, because there was no connection.
pub(crate) fn not_sent<D: Dialect>(error: Error) -> StoreError {
    let (kind, _) = classify::<D>(&error);
    explained::<D>(kind, Certainty::Definite, error)
}

/// Whether the outcome is unknown after this error.
pub(crate) fn is_unknown<D: Dialect>(error: &Error) -> bool {
    classify::<D>(error).1 == Certainty::Unknown
}

fn classify<D: Dialect>(error: &Error) -> (StoreErrorKind, Certainty) {
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Rejected, Unavailable};
    D::classify(error).unwrap_or(match error {
        Error::PoolTimedOut | Error::PoolClosed => (Unavailable, Definite),
        Error::Configuration(_) | Error::Tls(_) => (Rejected, Definite),
        _ => (Unavailable, Unknown),
    })
}

fn explained<D: Dialect>(kind: StoreErrorKind, certainty: Certainty, error: Error) -> StoreError {
    match D::hint(&error) {
        Some(hint) => StoreError::new(kind, certainty, hint),
        None => StoreError::new(kind, certainty, error),
    }
}

/// The error for a reply that the server should never give.
pub(crate) fn unexpected(reply: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, reply)
}

/// An error that only a change of configuration fixes.
pub(crate) fn unfit(why: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, why.into())
}
