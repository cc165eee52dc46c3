//! SQLite, against plain statements on a plain table: the same settings, one connection that
//! writes.
//!
//! The bare side commits every statement by itself, as a program does that has one statement to
//! run. Semel's writer commits together what waits together, which is why it can be faster.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::ensure;
use semel::core::{Claimed, Store as _, StoreAdmin as _};
use semel::tokio_env;
use semel_stores::sqlite::SqliteStore;
use sqlx::Row as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::sql::{busy, fresh_run, id, packed, replay};
use super::{CALLERS, asked, bytes_row, compare};
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::Row;

/// A folder for this run, removed at its end. Under `target`, so on a disk where the system's temp
/// folder may be none.
struct Folder(PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let name = format!("bench-sqlite-{:08x}", tokio_env().entropy.next_u128() >> 96);
        let folder = std::env::current_dir()?.join("target").join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left-over files are no reason to lose the figures.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) async fn rows() -> anyhow::Result<Vec<Row>> {
    let folder = Folder::make()?;
    let url = format!("sqlite://{}/keys.db", folder.0.display());
    let store = Arc::new(SqliteStore::open(&url, tokio_env().clock).await?);
    let options = SqliteConnectOptions::new()
        .filename(folder.0.join("bare.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let writing = SqlitePoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false);
    let writing = writing.connect_with(options.clone()).await?;
    let reading = SqlitePoolOptions::new()
        .max_connections(4)
        .test_before_acquire(false);
    let reading = reading.connect_with(options).await?;
    let table = "CREATE TABLE bare (id BLOB PRIMARY KEY, body BLOB NOT NULL)";
    sqlx::raw_sql(table).execute(&writing).await?;
    let rows = vec![
        fresh(&store, &writing).await?,
        replayed(&store, &writing, &reading).await?,
        contended(&store, &writing, &reading).await?,
        bytes(&store, &writing).await?,
    ];
    writing.close().await;
    reading.close().await;
    Ok(rows)
}

/// Claim and settle, against `INSERT` and `UPDATE` by primary key of the same bytes.
async fn fresh(store: &Arc<SqliteStore>, pool: &SqlitePool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (running, done) = packed(&**store, &asked(run, u64::MAX)).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    let row = compare(
        "SQLite: fresh".to_owned(),
        Some(0.85),
        move |i| fresh_run(Arc::clone(&store), asked(run, i)),
        move |i| bare_writes(pool.clone(), id(run, i), running.clone(), done.clone()),
    );
    row.await
}

async fn bare_writes(
    pool: SqlitePool,
    id: Vec<u8>,
    running: Vec<u8>,
    done: Vec<u8>,
) -> anyhow::Result<()> {
    let insert = sqlx::query("INSERT INTO bare (id, body) VALUES (?, ?)");
    insert.bind(id.clone()).bind(running).execute(&pool).await?;
    let update = sqlx::query("UPDATE bare SET body = ? WHERE id = ?");
    update.bind(done).bind(id).execute(&pool).await?;
    Ok(())
}

async fn bare_read(pool: SqlitePool, id: Vec<u8>) -> anyhow::Result<()> {
    let select = sqlx::query("SELECT body FROM bare WHERE id = ?").bind(id);
    let body: Vec<u8> = select.fetch_one(&pool).await?.get(0);
    ensure!(!body.is_empty());
    Ok(())
}

/// A claim that replays, against `SELECT` by primary key.
async fn replayed(
    store: &Arc<SqliteStore>,
    writing: &SqlitePool,
    reading: &SqlitePool,
) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (_, done) = packed(&**store, &asked(run, 0)).await?;
    bare_writes(writing.clone(), id(run, 0), Vec::new(), done).await?;
    let (store, pool) = (Arc::clone(store), reading.clone());
    let row = compare(
        "SQLite: replay".to_owned(),
        None,
        move |_| replay(Arc::clone(&store), run),
        move |_| bare_read(pool.clone(), id(run, 0)),
    );
    row.await
}

/// A claim that finds another running, against `SELECT` by primary key.
async fn contended(
    store: &Arc<SqliteStore>,
    writing: &SqlitePool,
    reading: &SqlitePool,
) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let first = store.claim(&asked(run, 0)).await?;
    ensure!(matches!(first, Claimed::Won(_)));
    bare_writes(writing.clone(), id(run, 0), vec![7; 120], vec![7; 120]).await?;
    let (store, pool) = (Arc::clone(store), reading.clone());
    let row = compare(
        format!("SQLite: contended, {CALLERS} callers, one key"),
        None,
        move |i| busy(Arc::clone(&store), run, i),
        move |_| bare_read(pool.clone(), id(run, 0)),
    );
    row.await
}

/// What a settled record takes on disk, its indexes included, against a key and an answer.
async fn bytes(store: &Arc<SqliteStore>, pool: &SqlitePool) -> anyhow::Result<Row> {
    const RECORDS: u64 = 5_000;
    let used = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, \
                pragma_page_size";
    let bare = async || sqlx::query_scalar::<_, i64>(used).fetch_one(pool).await;
    let (before, bare_before) = (store.usage().await?.bytes, bare().await?);
    let records = store.stats().await?.records;
    let run = tokio_env().entropy.next_u128();
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..8 {
        let (store, pool) = (Arc::clone(store), pool.clone());
        tasks.spawn(async move {
            for i in (part..RECORDS).step_by(8) {
                fresh_run(Arc::clone(&store), asked(run, i)).await?;
                let insert = sqlx::query("INSERT INTO bare (id, body) VALUES (?, ?)");
                insert
                    .bind(id(run, i))
                    .bind(vec![7_u8; ANSWER_BYTES])
                    .execute(&pool)
                    .await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    ensure!(store.stats().await?.records == records + RECORDS);
    let ours = (store.usage().await?.bytes - before) as f64 / RECORDS as f64;
    let bare = (bare().await? - bare_before) as f64 / RECORDS as f64;
    Ok(bytes_row("SQLite", ours, bare))
}
