//! Schema migrations: creates and updates the tables from the files in `migrations/mysql`.
//!
//! The server commits after every DDL statement, so a file may be applied in part. Each may be
//! applied again, and is recorded only when it is complete.

use std::sync::Arc;

use semel_core::Clock;
use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::error::{store_error, unfit};
use super::health;
use super::options::Options;
use super::{Link, Session};

/// The files, in order: name and text. To create the tables by hand, apply them and record their
/// names in `semel_migrations (name varchar(64) primary key, applied_at timestamp)`.
pub const MIGRATIONS: &[(&str, &str)] = &[
    (
        "0001_records",
        include_str!("../../migrations/mysql/0001_records.sql"),
    ),
    (
        "0002_fences",
        include_str!("../../migrations/mysql/0002_fences.sql"),
    ),
];

/// How long to wait for another process that creates the tables, in seconds.
const PATIENCE: u32 = 30;

/// Checks that the tables are up to date, and creates what is missing if `make` is set. Of several
/// processes that start at once, one does it.
pub(super) async fn prepare(link: &Link, make: bool) -> StoreResult<()> {
    let mut session = link.session(None).await?;
    if !missing(&mut session).await?.is_empty() {
        if !make {
            return Err(unfit(
                "the tables are not there or out of date; leave out migrate=off, or apply the files in \
                 migrations/mysql",
            ));
        }
        apply(&mut session).await?;
    }
    session.give_back();
    Ok(())
}

/// The names of the files that are not applied yet to the database at `url`. Changes nothing.
///
/// # Errors
/// If it can't be reached, or isn't fit to keep records.
pub async fn pending(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Vec<&'static str>> {
    let options = Options::parse(url)?;
    let link = options.open(clock).await?;
    health::check(&link).await?;
    let mut session = link.session(None).await?;
    let files = missing(&mut session).await?;
    session.give_back();
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// The files that are not applied yet.
async fn missing(session: &mut Session) -> StoreResult<Vec<(&'static str, &'static str)>> {
    let question = "SELECT 1 FROM information_schema.tables \
                    WHERE table_schema = DATABASE() AND table_name = 'semel_migrations'";
    if session.script(question).await?.is_empty() {
        return Ok(MIGRATIONS.to_vec());
    }
    let rows = session.script("SELECT name FROM semel_migrations").await?;
    let applied: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
    let applied = applied.map_err(store_error)?;
    let is_missing = |(name, _): &&(&str, &str)| !applied.iter().any(|done| done == name);
    Ok(MIGRATIONS.iter().filter(is_missing).copied().collect())
}

/// Applies the files under a lock per database, which is released when the session ends.
async fn apply(session: &mut Session) -> StoreResult<()> {
    let name = "CONCAT('semel.', MD5(DATABASE()))";
    let lock = format!("SELECT COALESCE(GET_LOCK({name}, {PATIENCE}), 0)");
    let rows = session.script(&lock).await?;
    let has_lock = rows
        .first()
        .is_some_and(|row| row.try_get::<i64, _>(0).ok() == Some(1));
    if !has_lock {
        return Err(unfit(
            "another process makes the tables, and takes too long",
        ));
    }
    let books = "CREATE TABLE IF NOT EXISTS semel_migrations (name VARCHAR(64) NOT NULL PRIMARY KEY, \
                 applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB";
    session.script(books).await?;
    for (name, text) in missing(session).await? {
        session.script(text).await?;
        let note = format!("INSERT INTO semel_migrations (name) VALUES ('{name}')");
        session.script(&note).await?;
    }
    session.script(&format!("DO RELEASE_LOCK({name})")).await?;
    Ok(())
}
