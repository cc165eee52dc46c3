//! What the PostgreSQL client says, as a store error: what is known, and whether to try again.

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::Error;

pub(super) use crate::sent::{after, unseen};

/// A statement that the server refused changed nothing. Silence, or a session ended by somebody, means that
/// nobody knows: the commit may have been written before.
pub(super) fn store_error(error: Error) -> StoreError {
    let (kind, certainty) = classify(&error);
    said(kind, certainty, error)
}

/// The same for what was never sent: no connection could be had.
pub(super) fn not_sent(error: Error) -> StoreError {
    let (kind, _) = classify(&error);
    said(kind, Certainty::Definite, error)
}

fn said(kind: StoreErrorKind, certainty: Certainty, error: Error) -> StoreError {
    match hint(&error) {
        Some(hint) => StoreError::new(kind, certainty, hint),
        None => StoreError::new(kind, certainty, error),
    }
}

/// A reply, or something else, that should not come.
pub(super) fn unexpected(said: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}

/// A record whose body is kept apart, and isn't there: damage, and no free key (P25).
pub(super) fn without_body() -> StoreError {
    let said = "a record without its body";
    StoreError::new(StoreErrorKind::Record, Certainty::Definite, said)
}

/// The server's code, such as `40001`.
pub(super) fn code(error: &Error) -> Option<String> {
    error
        .as_database_error()
        .and_then(|error| error.code().map(std::borrow::Cow::into_owned))
}

fn classify(error: &Error) -> (StoreErrorKind, Certainty) {
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Full, Rejected, Unavailable};
    let Some(code) = code(error) else {
        return match error {
            Error::PoolTimedOut | Error::PoolClosed => (Unavailable, Definite),
            Error::Configuration(_) | Error::Tls(_) => (Rejected, Definite),
            _ => (Unavailable, Unknown),
        };
    };
    match code.as_str() {
        "53100" => (Full, Definite),
        // Ended by an administrator, a crash of another session, an idle limit: in the middle of a commit too.
        "57P01" | "57P02" | "57P05" => (Unavailable, Unknown),
        // Starting up, too many connections, a cancelled statement, a lost race, a replica: try again.
        "57P03" | "57014" | "40001" | "40P01" | "55P03" | "25006" | "25P02" => {
            (Unavailable, Definite)
        }
        code if code.starts_with("53") => (Unavailable, Definite),
        code if code.starts_with("08") => (Unavailable, Unknown),
        _ => (Rejected, Definite),
    }
}

/// What to do about the mistakes that people make.
fn hint(error: &Error) -> Option<&'static str> {
    match code(error)?.as_str() {
        "42P01" | "3F000" | "42883" => Some(
            "the tables are not there; leave out migrate=off, or apply the files in migrations/postgres",
        ),
        "26000" | "42P05" => Some(
            "prepared statements got lost: behind a pooler in transaction mode, add pooler=transaction to the URL",
        ),
        "42501" => Some(
            "the role may not use the schema semel; grant it usage on the schema, and select, insert, update and \
             delete on its tables",
        ),
        _ => None,
    }
}

/// Whether the connection is of no further use: what was sent last may have been done.
pub fn is_broken(error: &Error) -> bool {
    match code(error) {
        Some(code) => code.starts_with("57P") || code.starts_with("08"),
        None => !matches!(error, Error::RowNotFound | Error::ColumnDecode { .. }),
    }
}
