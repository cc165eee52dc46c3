//! The tables: made and brought up to date from the files in `migrations/postgres`.
//!
//! By hand rather than by the client's migrator: that one keeps its books in a table that the
//! application's own migrations use, and leaves prepared statements behind that a pooler in
//! transaction mode mixes up.

use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{Certainty, Clock, StoreError, StoreErrorKind};
use sqlx::Row as _;

use super::BEGIN;
use super::error::store_error;
use super::health;
use super::options::Options;
use super::{Link, Session};

/// A file that makes or changes tables: its name and its text.
pub type File = (&'static str, &'static str);

/// The files, in order: name and text. Whoever doesn't let Semel make tables applies them by hand,
/// in a schema `semel`, and notes their names in `semel.migrations (name text, applied_at
/// timestamptz)`.
pub const MIGRATIONS: &[File] = &[
    (
        "0001_records",
        include_str!("../../migrations/postgres/0001_records.sql"),
    ),
    (
        "0002_fence_floor",
        include_str!("../../migrations/postgres/0002_fence_floor.sql"),
    ),
    (
        "0003_above_floor",
        include_str!("../../migrations/postgres/0003_above_floor.sql"),
    ),
];

/// Checks that the tables are there and up to date, and where `make` says so makes what is missing,
/// all or nothing. Of several processes that start at once, one does it.
pub(super) async fn prepare(link: &Link, files: &[File], make: bool) -> StoreResult<()> {
    let mut session = link.session(BEGIN).await?;
    let mut current = is_current(&mut session, files).await?;
    if !current && make {
        apply(&mut session, files).await?;
        current = true;
    }
    session.commit().await?;
    if current {
        return Ok(());
    }
    let said = "the tables are not there or out of date; leave out migrate=off, or apply the files in \
                migrations/postgres";
    Err(StoreError::new(
        StoreErrorKind::Rejected,
        Certainty::Definite,
        said,
    ))
}

/// Which of these files are not applied yet to the database at `url`, by name. Changes nothing.
///
/// # Errors
/// If it can't be reached, or isn't fit to keep records.
pub async fn pending(
    url: &str,
    files: &[File],
    clock: Arc<dyn Clock>,
) -> StoreResult<Vec<&'static str>> {
    let options = Options::parse(url)?;
    let link = options.open(clock).await?;
    health::check(&link).await?;
    let mut session = link.session(BEGIN).await?;
    let files = if has_books(&mut session).await? {
        missing(&mut session, files).await?
    } else {
        files.to_vec()
    };
    session.commit().await?;
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

async fn has_books(session: &mut Session) -> StoreResult<bool> {
    let question = "SELECT 1 WHERE to_regclass('semel.migrations') IS NOT NULL";
    Ok(!session.script(question).await?.is_empty())
}

async fn is_current(session: &mut Session, files: &[File]) -> StoreResult<bool> {
    if !has_books(session).await? {
        return Ok(false);
    }
    Ok(missing(session, files).await?.is_empty())
}

/// The files that are not applied yet.
async fn missing(session: &mut Session, files: &[File]) -> StoreResult<Vec<File>> {
    let rows = session.script("SELECT name FROM semel.migrations").await?;
    let applied: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
    let applied = applied.map_err(store_error)?;
    let is_missing = |(name, _): &&File| !applied.iter().any(|done| done == name);
    Ok(files.iter().filter(is_missing).copied().collect())
}

async fn apply(session: &mut Session, files: &[File]) -> StoreResult<()> {
    let begin = "SELECT pg_advisory_xact_lock(7306636); CREATE SCHEMA IF NOT EXISTS semel; \
                 CREATE TABLE IF NOT EXISTS semel.migrations \
                 (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";
    session.script(begin).await?;
    for (name, text) in missing(session, files).await? {
        session.script(text).await?;
        session
            .script(&format!(
                "INSERT INTO semel.migrations (name) VALUES ('{name}')"
            ))
            .await?;
    }
    Ok(())
}
