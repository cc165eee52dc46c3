//! What the client says, as a store error: what is known, and whether to try again.

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::Error;
use sqlx::mysql::MySqlDatabaseError;

pub(super) use crate::sent::{after, unseen};

/// Another has a row of this key.
pub(super) const DUPLICATE: u16 = 1062;
/// Two sessions wait for each other, and this one was chosen to give way.
pub(super) const DEADLOCK: u16 = 1213;
/// A row stayed locked for too long; also what MariaDB says to `NOWAIT`.
pub(super) const LOCK_WAIT: u16 = 1205;
/// What MySQL says to `NOWAIT`.
pub(super) const LOCK_NOWAIT: u16 = 3572;
/// A savepoint that is not there, and so a transaction that was ended.
pub(super) const NO_SAVEPOINT: u16 = 1305;

/// A statement that the server refused changed nothing. Silence, or a session ended by somebody, means that nobody
/// knows: the commit may have been written before.
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
    match number(&error).and_then(hint) {
        Some(hint) => StoreError::new(kind, certainty, hint),
        None => StoreError::new(kind, certainty, error),
    }
}

/// A reply, or something else, that should not come.
pub(super) fn unexpected(said: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}

/// What only a change of the configuration mends.
pub(super) fn unfit(said: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said.into())
}

/// The server's number, such as 1213.
pub(super) fn number(error: &Error) -> Option<u16> {
    let error = error.as_database_error()?;
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// Whether nobody knows, after this error, if what was sent was done.
pub(super) fn is_unknown(error: &Error) -> bool {
    classify(error).1 == Certainty::Unknown
}

fn classify(error: &Error) -> (StoreErrorKind, Certainty) {
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Full, Rejected, Unavailable};
    let Some(number) = number(error) else {
        return match error {
            Error::PoolTimedOut | Error::PoolClosed => (Unavailable, Definite),
            Error::Configuration(_) | Error::Tls(_) => (Rejected, Definite),
            _ => (Unavailable, Unknown),
        };
    };
    match number {
        // The disk, or a table's own limit.
        1021 | 1114 | 1030 => (Full, Definite),
        // Ended by an administrator, or with the server: in the middle of a commit too.
        1053 | 1077 | 1079 | 1184 | 1927 | 3169 | 4031 => (Unavailable, Unknown),
        // A lost race, too many connections, a cancelled statement, a server that may only be read now: try again.
        DEADLOCK | LOCK_WAIT | LOCK_NOWAIT => (Unavailable, Definite),
        1040 | 1203 | 1226 | 1317 | 1969 | 3024 | 1290 | 1836 | 1792 => (Unavailable, Definite),
        _ => (Rejected, Definite),
    }
}

/// What to do about the mistakes that people make.
fn hint(number: u16) -> Option<&'static str> {
    match number {
        1146 => Some(
            "the tables are not there; leave out migrate=off, or apply the files in migrations/mysql",
        ),
        1142 | 1143 | 1370 => Some(
            "the user may not use the tables semel_…; grant it select, insert, update and delete on them",
        ),
        1665 => Some(
            "binlog_format is STATEMENT, which READ COMMITTED doesn't go with; set it to ROW or MIXED",
        ),
        1153 => Some(
            "the answer is larger than the server's max_allowed_packet; raise that, or keep smaller answers",
        ),
        _ => None,
    }
}

/// Whether the connection is of no further use: what was sent last may have been done.
pub fn is_broken(error: &Error) -> bool {
    match number(error) {
        Some(number) => matches!(
            number,
            1053 | 1077 | 1079 | 1153 | 1184 | 1927 | 3169 | 4031
        ),
        None => !matches!(error, Error::RowNotFound | Error::ColumnDecode { .. }),
    }
}
