//! MariaDB, against plain statements on a plain table.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use semel::core::{Claimed, Store as _, StoreAdmin as _};
use semel::{Failure, Semel, tokio_env};
use semel_stores::mysql::MySqlStore;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Row as _};

use super::sql::{busy, fresh_run, id, packed, replay};
use super::{CALLERS, asked, bytes_row, compare};
use crate::turns::Setup;
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::Row;

/// The same for both sides.
const CONNECTIONS: u32 = 16;

/// How many accounts the business transaction chooses from: enough that callers seldom meet.
const ACCOUNTS: u64 = 10_000;

/// A database for this run, dropped at its end.
struct Database {
    url: String,
    admin: MySqlPool,
    name: String,
}

impl Database {
    async fn make() -> anyhow::Result<Self> {
        let variable = "SEMEL_TEST_MARIADB_URL";
        let url = std::env::var(variable).with_context(|| {
            format!("{variable} is not set; `cargo xtask services up` tells it")
        })?;
        let admin = MySqlPool::connect(&url).await?;
        let name = format!("bench_{:08x}", tokio_env().entropy.next_u128() >> 96);
        let make = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&admin).await?;
        let (server, _) = url.rsplit_once('/').context("a URL with a database")?;
        let url = format!("{server}/{name}");
        Ok(Self { url, admin, name })
    }

    async fn discard(self) -> anyhow::Result<()> {
        let drop = format!("DROP DATABASE {}", self.name);
        sqlx::raw_sql(AssertSqlSafe(drop))
            .execute(&self.admin)
            .await?;
        Ok(())
    }
}

pub(super) async fn rows() -> anyhow::Result<Vec<Row>> {
    let database = Database::make().await?;
    let url = format!("{}?max_connections={CONNECTIONS}", database.url);
    let store = Arc::new(MySqlStore::open(&url, tokio_env().clock).await?);
    let pool = MySqlPoolOptions::new()
        .max_connections(CONNECTIONS)
        .test_before_acquire(false);
    let pool = pool.connect(&database.url).await?;
    let tables = format!(
        "CREATE TABLE bare (id BINARY(16) PRIMARY KEY, body BLOB NOT NULL); \
         CREATE TABLE answers (id BINARY(16) PRIMARY KEY, body BLOB NOT NULL); \
         CREATE TABLE accounts (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL); \
         CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, taker BIGINT, giver BIGINT, amount BIGINT); \
         INSERT INTO accounts SELECT seq, 1000000 FROM seq_0_to_{}",
        ACCOUNTS - 1
    );
    sqlx::raw_sql(AssertSqlSafe(tables)).execute(&pool).await?;
    let rows = vec![
        fresh(1, &store, &pool).await?,
        fresh(CALLERS, &store, &pool).await?,
        replayed(&store, &pool).await?,
        contended(&store, &pool).await?,
        transactional(&database.url, &pool).await?,
        bytes(&store, &pool).await?,
    ];
    pool.close().await;
    drop(store);
    database.discard().await?;
    Ok(rows)
}

/// Claim and settle, against `INSERT` and `UPDATE` by primary key of the same bytes.
async fn fresh(callers: usize, store: &Arc<MySqlStore>, pool: &MySqlPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (running, done) = packed(&**store, &asked(run, u64::MAX)).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    let row = Setup::default().with_callers(callers).compare(
        format!("MariaDB: fresh, callers: {callers}"),
        (callers == CALLERS).then_some(1.3),
        move |i| fresh_run(Arc::clone(&store), asked(run, i)),
        move |i| bare_writes(pool.clone(), id(run, i), running.clone(), done.clone()),
    );
    row.await
}

async fn bare_writes(
    pool: MySqlPool,
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

async fn bare_read(pool: MySqlPool, id: Vec<u8>) -> anyhow::Result<()> {
    let select = sqlx::query("SELECT body FROM bare WHERE id = ?").bind(id);
    let body: Vec<u8> = select.fetch_one(&pool).await?.get(0);
    ensure!(!body.is_empty());
    Ok(())
}

/// A claim that replays, against `SELECT` by primary key.
async fn replayed(store: &Arc<MySqlStore>, pool: &MySqlPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (_, done) = packed(&**store, &asked(run, 0)).await?;
    bare_writes(pool.clone(), id(run, 0), Vec::new(), done).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    let row = compare(
        "MariaDB: replay to a caller that says a retry".to_owned(),
        None,
        move |_| replay(Arc::clone(&store), run),
        move |_| bare_read(pool.clone(), id(run, 0)),
    );
    row.await
}

/// A claim that finds another running, against an `INSERT` that finds a row, and a `SELECT`.
async fn contended(store: &Arc<MySqlStore>, pool: &MySqlPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let first = store.claim(&asked(run, 0)).await?;
    ensure!(matches!(first, Claimed::Won(_)));
    bare_writes(pool.clone(), id(run, 0), vec![7; 120], vec![7; 120]).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    let bare = move |_| {
        let pool = pool.clone();
        async move {
            let insert = sqlx::query("INSERT IGNORE INTO bare VALUES (?, ?)").bind(id(run, 0));
            insert.bind(vec![7_u8; 120]).execute(&pool).await?;
            bare_read(pool, id(run, 0)).await
        }
    };
    let row = compare(
        format!("MariaDB: contended, {CALLERS} callers, one key"),
        None,
        move |i| busy(Arc::clone(&store), run, i),
        bare,
    );
    row.await
}

/// A transfer with its record in the same transaction, against the transfer alone.
async fn transactional(url: &str, pool: &MySqlPool) -> anyhow::Result<Row> {
    let semel = Semel::open(&format!("{url}?max_connections=4")).await?;
    let run = format!("{:032x}", tokio_env().entropy.next_u128());
    let (ours_pool, bare_pool) = (pool.clone(), pool.clone());
    let ours = move |i| {
        let (semel, pool, key) = (semel.clone(), ours_pool.clone(), format!("{run}-{i}"));
        async move {
            let call = semel.operation("transfer").key(&key).payload(&i);
            let answer = call.run_in(&pool, async move |mut tx, _| {
                transfer(&mut tx, i).await?;
                Ok::<_, Failure>("r".repeat(ANSWER_BYTES))
            });
            ensure!(!answer.await?.replayed);
            Ok(())
        }
    };
    let bare = move |i| {
        let pool = bare_pool.clone();
        async move {
            let mut tx = pool.begin().await?;
            transfer(&mut tx, i).await?;
            Ok(tx.commit().await?)
        }
    };
    compare("MariaDB: transactional".to_owned(), None, ours, bare).await
}

/// A small business transaction: look, take, give, note.
async fn transfer(tx: &mut sqlx::MySqlConnection, i: u64) -> Result<(), sqlx::Error> {
    let account = |salt: u64| {
        let mixed = i.wrapping_add(salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        i64::try_from(mixed % ACCOUNTS).unwrap_or(0)
    };
    // In one order, so that two transfers never wait for each other.
    let (low, high) = (account(0).min(account(7)), account(0).max(account(7)));
    let look = sqlx::query("SELECT amount FROM accounts WHERE id = ?").bind(low);
    look.fetch_one(&mut *tx).await?;
    for (id, amount) in [(low, -1_i64), (high, 1)] {
        let update = sqlx::query("UPDATE accounts SET amount = amount + ? WHERE id = ?");
        update.bind(amount).bind(id).execute(&mut *tx).await?;
    }
    let note = sqlx::query("INSERT INTO ledger (taker, giver, amount) VALUES (?, ?, 1)");
    note.bind(low).bind(high).execute(tx).await?;
    Ok(())
}

/// What a settled record takes on disk, against a key and an answer, as the server's own statistics
/// say.
async fn bytes(store: &Arc<MySqlStore>, pool: &MySqlPool) -> anyhow::Result<Row> {
    const RECORDS: u64 = 20_000;
    let clear = "TRUNCATE semel_records; TRUNCATE answers";
    sqlx::raw_sql(clear).execute(pool).await?;
    let run = tokio_env().entropy.next_u128();
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..8 {
        let (store, pool) = (Arc::clone(store), pool.clone());
        tasks.spawn(async move {
            for i in (part..RECORDS).step_by(8) {
                fresh_run(Arc::clone(&store), asked(run, i)).await?;
                let insert = sqlx::query("INSERT INTO answers (id, body) VALUES (?, ?)");
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
    ensure!(store.stats().await?.records == RECORDS);
    sqlx::raw_sql("ANALYZE TABLE semel_records, answers")
        .fetch_all(pool)
        .await?;
    let size = async |table: &'static str| {
        let text = "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables \
                    WHERE table_schema = DATABASE() AND table_name = ?";
        let bytes: i64 = sqlx::query_scalar(text).bind(table).fetch_one(pool).await?;
        anyhow::Ok(bytes as f64 / RECORDS as f64)
    };
    Ok(bytes_row(
        "MariaDB",
        size("semel_records").await?,
        size("answers").await?,
    ))
}
