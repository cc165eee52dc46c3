//! Schema migrations: creates and updates the tables from the files in `migrations/sqlite`.

use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{Clock, StoreError};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use super::error::{commit_error, store_error, unfit};
use super::file;
use super::lock_queue::BusyTimeout;
use super::options::Options;

/// The files, in order: name and text. The file's `user_version` says how many were applied.
pub const MIGRATIONS: &[(&str, &str)] = &[(
    "0001_records",
    include_str!("../../migrations/sqlite/0001_records.sql"),
)];

/// Marks a file as ours: "Seml".
const APPLICATION: i64 = 0x5365_6D6C;

/// Opens the file for writing; makes it and its tables if they are missing and `migrate` says so.
/// The connection doesn't wait for other processes by itself: the writer does, in turn with theirs.
pub(super) async fn open(
    options: &Options,
    clock: &Arc<dyn Clock>,
) -> StoreResult<SqliteConnection> {
    let mut connection = connect(options).await?;
    // Before anything is written: another application's file stays as it is.
    check(&mut connection).await?;
    use_log(&mut connection, options, clock).await?;
    if !missing(&mut connection).await?.is_empty() {
        if !options.migrate {
            return Err(unfit(
                "the tables are not there or out of date; leave out migrate=off, or run `semel migrate`",
            ));
        }
        apply(&mut connection).await?;
    }
    number(&mut connection, "PRAGMA busy_timeout = 0").await?;
    Ok(connection)
}

async fn connect(options: &Options) -> StoreResult<SqliteConnection> {
    SqliteConnection::connect_with(&options.connect())
        .await
        .map_err(store_error)
}

/// The names of the files that are not applied yet to the database at `url`. Creates neither tables
/// nor the file.
///
/// # Errors
/// If it can't be opened, or isn't one of ours.
pub async fn pending(url: &str) -> StoreResult<Vec<&'static str>> {
    let options = Options::parse(url)?;
    if !options.path.exists() {
        return Ok(MIGRATIONS.iter().map(|(name, _)| *name).collect());
    }
    file::prepare(&options.path)?;
    let mut connection = connect(&options).await?;
    check(&mut connection).await?;
    let names = missing(&mut connection)
        .await?
        .iter()
        .map(|(name, _)| *name)
        .collect();
    connection.close().await.map_err(store_error)?;
    Ok(names)
}

/// Readers and the writer don't wait for each other with a write-ahead log. Turning it on needs the
/// file alone, for which SQLite doesn't wait by itself.
async fn use_log(
    connection: &mut SqliteConnection,
    options: &Options,
    clock: &Arc<dyn Clock>,
) -> StoreResult<()> {
    let patience = BusyTimeout::new(&**clock, options.busy);
    loop {
        let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL");
        match mode.fetch_one(&mut *connection).await {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => return Err(unfit("the file system can't keep a write-ahead log")),
            Err(error) if patience.is_over(&error) => return Err(store_error(error)),
            Err(_) => patience.pause().await,
        }
    }
}

/// Rejects a file of another application, or of a later version.
async fn check(connection: &mut SqliteConnection) -> StoreResult<()> {
    // In this order: both are committed at once, maybe between these two, by another process that
    // makes them.
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
    let application = number(connection, "PRAGMA application_id").await?;
    if application != APPLICATION && (application != 0 || tables != 0) {
        return Err(unfit(
            "the file is another application's database; give semel a file of its own",
        ));
    }
    let version = number(connection, "PRAGMA user_version").await?;
    if usize::try_from(version).is_ok_and(|version| version <= MIGRATIONS.len()) {
        return Ok(());
    }
    Err(unfit(
        "the file was made by a newer version of semel; upgrade",
    ))
}

async fn missing(
    connection: &mut SqliteConnection,
) -> StoreResult<&'static [(&'static str, &'static str)]> {
    let applied = number(connection, "PRAGMA user_version").await?;
    let applied = usize::try_from(applied).unwrap_or(0).min(MIGRATIONS.len());
    Ok(&MIGRATIONS[applied..])
}

/// All or nothing; of several processes that start at once, one does it.
async fn apply(connection: &mut SqliteConnection) -> StoreResult<()> {
    let mut tx = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(store_error)?;
    let version = MIGRATIONS.len();
    let mut script: String = missing(&mut tx)
        .await?
        .iter()
        .map(|(_, text)| *text)
        .collect();
    script += &format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version};");
    let applied = sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut *tx).await;
    applied.map_err(store_error)?;
    tx.commit().await.map_err(commit_error)
}

async fn number(
    connection: &mut SqliteConnection,
    question: &'static str,
) -> Result<i64, StoreError> {
    let number = sqlx::query_scalar(question).fetch_one(connection).await;
    number.map_err(store_error)
}
