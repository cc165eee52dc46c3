//! What SQLite says, as a store error: what is known, and whether to try again.

use semel_core::{Certainty, StoreError, StoreErrorKind};
use sqlx::Error;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const INTERRUPT: i32 = 9;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const NOTADB: i32 = 26;

/// For whatever is not a commit: what failed was rolled back, and changed nothing.
pub(super) fn store_error(error: Error) -> StoreError {
    said(Certainty::Definite, error)
}

/// For a commit: refused, it is rolled back; with a disk that fails, nobody knows.
pub(super) fn commit_error(error: Error) -> StoreError {
    let certainty = match code(&error) {
        Some(BUSY | LOCKED | FULL | READONLY) => Certainty::Definite,
        _ => Certainty::Unknown,
    };
    said(certainty, error)
}

fn said(certainty: Certainty, error: Error) -> StoreError {
    let kind = match code(&error) {
        Some(FULL) => StoreErrorKind::Full,
        Some(BUSY | LOCKED | INTERRUPT | IOERR | PROTOCOL) | None => StoreErrorKind::Unavailable,
        Some(_) => StoreErrorKind::Rejected,
    };
    match code(&error).and_then(hint) {
        Some(hint) => StoreError::new(kind, certainty, hint),
        None => StoreError::new(kind, certainty, error),
    }
}

/// A reply, or something else, that should not come.
pub(super) fn unexpected(said: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}

/// What only a change of the configuration, or of the file, mends.
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

/// What to do about the mistakes that people make.
fn hint(code: i32) -> Option<&'static str> {
    match code {
        BUSY | LOCKED => Some(
            "another process holds the write lock of the file for long; look for a backup or a shell that has a \
             transaction open",
        ),
        READONLY => Some("this user may not write the file, or the folder that it is in"),
        CANTOPEN => {
            Some("the file can't be opened: the folder must be there, and writable by this user")
        }
        NOTADB => Some("the file is there, and is not an SQLite database"),
        CORRUPT => Some("the file is damaged; restore it, or move it away to begin anew"),
        FULL => Some("the disk is full, or the file has reached its limit"),
        _ => None,
    }
}
