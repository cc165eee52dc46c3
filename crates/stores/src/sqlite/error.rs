//! What SQLite says, as a store error: what is known, and whether to try again.

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::Error;

use crate::ServerError;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const NOTADB: i32 = 26;

/// What SQLite may answer, by its primary code. The certainty is that of a commit; whatever else
/// fails is rolled back, and changed nothing. What is not here only a change of the configuration
/// mends, and of a commit nobody knows.
pub const ERRORS: &[ServerError] = &{
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Full, Rejected, Unavailable};
    [
        ServerError::new(
            "5",
            Unavailable,
            Definite,
            "another process has the lock (BUSY)",
        ),
        ServerError::new("6", Unavailable, Definite, "a table is locked (LOCKED)"),
        ServerError::new("7", Unavailable, Unknown, "out of memory (NOMEM)"),
        ServerError::new(
            "8",
            Rejected,
            Definite,
            "the file may not be written (READONLY)",
        ),
        ServerError::new(
            "9",
            Unavailable,
            Unknown,
            "the statement was cancelled (INTERRUPT)",
        ),
        ServerError::new("10", Unavailable, Unknown, "the disk failed (IOERR)"),
        ServerError::new("11", Rejected, Unknown, "the file is damaged (CORRUPT)"),
        ServerError::new("13", Full, Definite, "the disk is full (FULL)"),
        ServerError::new(
            "14",
            Unavailable,
            Unknown,
            "no file handle is free (CANTOPEN)",
        ),
        ServerError::new(
            "15",
            Unavailable,
            Unknown,
            "another process is at the log (PROTOCOL)",
        ),
        ServerError::new("26", Rejected, Unknown, "the file is no database (NOTADB)"),
    ]
};

/// For whatever is not a commit: what failed was rolled back, and changed nothing.
pub(super) fn store_error(error: Error) -> StoreError {
    let (kind, _) = classify(code(&error));
    said(kind, Certainty::Definite, error)
}

/// The store error of a failed commit. A rejected one is rolled back; after a disk failure, the
/// outcome is unknown.
pub(super) fn commit_error(error: Error) -> StoreError {
    let (kind, certainty) = classify(code(&error));
    said(kind, certainty, error)
}

/// Without a code the client failed: there was no connection, or it broke.
fn classify(code: Option<i32>) -> (StoreErrorKind, Certainty) {
    let Some(code) = code else {
        return (StoreErrorKind::Unavailable, Certainty::Unknown);
    };
    let row = ServerError::find(ERRORS, &code.to_string());
    row.map_or((StoreErrorKind::Rejected, Certainty::Unknown), |row| {
        (row.kind, row.certainty)
    })
}

fn said(kind: StoreErrorKind, certainty: Certainty, error: Error) -> StoreError {
    match code(&error).and_then(hint) {
        Some(hint) => StoreError::new(kind, certainty, hint),
        None => StoreError::new(kind, certainty, error),
    }
}

/// The error for a reply that should never come.
pub(super) fn unexpected(said: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}

/// An error that only a change of configuration, or of the file, fixes.
pub(super) fn unfit(said: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said.into())
}

/// Whether another connection is in the way, and waiting may help.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(code(error), Some(BUSY | LOCKED | PROTOCOL))
}

/// SQLite's own code, without what extends it.
fn code(error: &Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<i32>().ok()? & 0xff)
}

/// Advice for common mistakes.
fn hint(code: i32) -> Option<&'static str> {
    match code {
        BUSY | LOCKED => Some(
            "another process holds the write lock of the file for long; look for a backup or a shell that has a \
             transaction open",
        ),
        READONLY => Some("this user may not write the file, or the folder that it is in"),
        CANTOPEN => Some(
            "the file can't be opened: the folder must be there, and writable by this user, who must have file handles \
                 left",
        ),
        NOTADB => Some("the file is there, and is not an SQLite database"),
        CORRUPT => Some("the file is damaged; restore it, or move it away to begin anew"),
        FULL => Some("the disk is full, or the file has reached its limit"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_classifies_its_own_code() {
        for row in ERRORS {
            let code = row.code.parse().ok();
            assert!(code.is_some(), "{row:?}");
            assert_eq!(classify(code), (row.kind, row.certainty), "{row:?}");
        }
    }

    #[test]
    fn transient_errors_are_retried() {
        const NOMEM: i32 = 7;
        for code in [BUSY, LOCKED, NOMEM, CANTOPEN, PROTOCOL] {
            assert!(classify(Some(code)).0.is_retried_for_claim(), "{code}");
        }
        for code in [READONLY, CORRUPT, NOTADB] {
            assert!(!classify(Some(code)).0.is_retried_for_claim(), "{code}");
        }
    }
}
