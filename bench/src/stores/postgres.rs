//! PostgreSQL, against plain statements on a plain table.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use semel::core::{Claim, Claimed, Record, Settled, Store, StoreAdmin as _};
use semel::{Failure, Semel, tokio_env};
use semel_stores::postgres::PostgresStore;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Row as _};

use super::{CALLERS, asked, bytes_row, completed, whole};
use crate::turns::Setup;
use semel_bench_core::ops::ANSWER_BYTES;
use semel_bench_core::report::Row;

/// The same for both sides.
const CONNECTIONS: u32 = 16;

/// How many accounts the business transaction chooses from: enough that callers seldom meet.
const ACCOUNTS: u64 = 10_000;

/// A database for this run, dropped at its end.
pub(crate) struct Database {
    pub(crate) url: String,
    admin: PgPool,
    name: String,
}

impl Database {
    pub(crate) async fn make(name: &str) -> anyhow::Result<Self> {
        let variable = "SEMEL_TEST_POSTGRES_URL";
        let url = std::env::var(variable).with_context(|| {
            format!("{variable} is not set; `cargo xtask services up` tells it")
        })?;
        let admin = PgPool::connect(&url).await?;
        let name = format!("bench_{name}_{:08x}", tokio_env().entropy.next_u128() >> 96);
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&admin)
            .await?;
        let (server, _) = url.rsplit_once('/').context("a URL with a database")?;
        let url = format!("{server}/{name}");
        Ok(Self { url, admin, name })
    }

    pub(crate) async fn store(&self) -> anyhow::Result<Arc<PostgresStore>> {
        let url = format!("{}?max_connections={CONNECTIONS}", self.url);
        Ok(Arc::new(
            PostgresStore::open(&url, tokio_env().clock).await?,
        ))
    }

    pub(crate) async fn pool(&self) -> anyhow::Result<PgPool> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .test_before_acquire(false);
        Ok(pool.connect(&self.url).await?)
    }

    pub(crate) async fn discard(self) -> anyhow::Result<()> {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        sqlx::raw_sql(AssertSqlSafe(drop))
            .execute(&self.admin)
            .await?;
        Ok(())
    }
}

pub(super) async fn rows(only: &str) -> anyhow::Result<Vec<Row>> {
    let database = Database::make("stores").await?;
    let (store, pool) = (database.store().await?, database.pool().await?);
    let server = Setup::of_server(process(&pool).await?);
    let tables = format!(
        "CREATE TABLE bare (id uuid PRIMARY KEY, body bytea NOT NULL); \
         CREATE TABLE answers (id uuid PRIMARY KEY, body bytea NOT NULL); \
         CREATE TABLE accounts (id bigint PRIMARY KEY, amount bigint NOT NULL); \
         CREATE TABLE ledger (id bigserial PRIMARY KEY, taker bigint, giver bigint, amount bigint); \
         INSERT INTO accounts SELECT i, 1000000 FROM generate_series(0, {ACCOUNTS} - 1) i"
    );
    sqlx::raw_sql(AssertSqlSafe(tables)).execute(&pool).await?;
    let wanted = |row: &str| row.starts_with(only);
    let mut rows = Vec::new();
    if wanted("fresh") {
        rows.extend(fresh_rows(server, &database.url, &store, &pool).await?);
    }
    if wanted("replay") {
        rows.push(replay(server, &store, &pool).await?);
    }
    if wanted("contended") {
        rows.push(contended(server, &store, &pool).await?);
    }
    if wanted("transactional") {
        rows.push(transactional(server, &database.url, &pool).await?);
    }
    if wanted("bytes") {
        rows.push(bytes(&store, &pool).await?);
    }
    pool.close().await;
    drop(store);
    database.discard().await?;
    Ok(rows)
}

async fn fresh_rows(
    server: Setup,
    url: &str,
    store: &Arc<PostgresStore>,
    pool: &PgPool,
) -> anyhow::Result<Vec<Row>> {
    Ok(vec![
        fresh(server.with_callers(1), store, pool).await?,
        fresh(server, store, pool).await?,
        whole_run(server, url, pool).await?,
        whole::encryption_row("PostgreSQL", url, server).await?,
    ])
}

/// Claim and settle, against `INSERT` and `UPDATE` by primary key of the same bytes.
async fn fresh(setup: Setup, store: &Arc<PostgresStore>, pool: &PgPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (running, done) = packed(store, &asked(run, u64::MAX)).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    // A lone caller has a round trip more work than the bare side; many share their commits.
    let target = if setup.callers == 1 { 0.90 } else { 1.5 };
    let row = setup.compare(
        format!("PostgreSQL: fresh, callers: {}", setup.callers),
        Some(target),
        move |i| fresh_run(Arc::clone(&store), asked(run, i)),
        move |i| bare_writes(pool.clone(), id(run, i), running.clone(), done.clone()),
    );
    row.await
}

/// A whole run of the engine, against the same bare writes.
async fn whole_run(setup: Setup, url: &str, pool: &PgPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let url = format!("{url}?max_connections={CONNECTIONS}");
    let (semel, pool) = (whole::plain(&url).await?, pool.clone());
    let bytes = vec![7_u8; ANSWER_BYTES + 140];
    let row = setup.compare(
        "PostgreSQL: a whole run of the engine".to_owned(),
        None,
        move |i| whole::run(semel.clone(), run, i),
        move |i| {
            bare_writes(
                pool.clone(),
                id(run, i),
                bytes[..140].to_vec(),
                bytes.clone(),
            )
        },
    );
    row.await
}

/// The server's first process, whose children serve the connections.
async fn process(pool: &PgPool) -> anyhow::Result<u32> {
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(pool)
        .await?;
    let stat = std::fs::read_to_string(format!("/proc/{backend}/stat"))?;
    let (_, after_name) = stat
        .rsplit_once(") ")
        .context("the state follows the name")?;
    Ok(after_name
        .split(' ')
        .nth(1)
        .context("the parent")?
        .parse()?)
}

async fn fresh_run(store: Arc<PostgresStore>, ask: Claim) -> anyhow::Result<()> {
    let Claimed::Won(grant) = store.claim(&ask).await? else {
        anyhow::bail!("the key is not new")
    };
    ensure!(store.settle(&grant, &completed()).await? == Settled::Done);
    Ok(())
}

fn id(run: u128, i: u64) -> Uuid {
    Uuid::from_bytes(asked(run, i).identity.address())
}

async fn bare_writes(
    pool: PgPool,
    id: Uuid,
    running: Vec<u8>,
    done: Vec<u8>,
) -> anyhow::Result<()> {
    let insert = sqlx::query("INSERT INTO bare (id, body) VALUES ($1, $2)");
    insert.bind(id).bind(running).execute(&pool).await?;
    let update = sqlx::query("UPDATE bare SET body = $2 WHERE id = $1");
    update.bind(id).bind(done).execute(&pool).await?;
    Ok(())
}

/// What is kept at claim, and at settle, in its packed form: the bare side writes as many bytes.
async fn packed(store: &PostgresStore, ask: &Claim) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let Claimed::Won(grant) = store.claim(ask).await? else {
        anyhow::bail!("the key is not new")
    };
    let record = |found: Option<Record>| found.context("the record is there");
    let running = record(store.read(&ask.identity).await?)?.encode();
    store.settle(&grant, &completed()).await?;
    let done = record(store.read(&ask.identity).await?)?.encode();
    Ok((running, done))
}

/// A claim that replays, against `SELECT` by primary key.
async fn replay(setup: Setup, store: &Arc<PostgresStore>, pool: &PgPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (_, done) = packed(store, &asked(run, 0)).await?;
    bare_writes(pool.clone(), id(run, 0), Vec::new(), done).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    let ours = move |_| {
        let store = Arc::clone(&store);
        async move {
            let ask = Claim {
                retry: true,
                ..asked(run, 0)
            };
            ensure!(matches!(store.claim(&ask).await?, Claimed::Replay(_)));
            Ok(())
        }
    };
    let bare = move |_| {
        let pool = pool.clone();
        async move {
            let select = sqlx::query("SELECT body FROM bare WHERE id = $1").bind(id(run, 0));
            ensure!(
                !select
                    .fetch_one(&pool)
                    .await?
                    .get::<Vec<u8>, _>(0)
                    .is_empty()
            );
            Ok(())
        }
    };
    setup
        .compare(
            "PostgreSQL: replay to a caller that says a retry".to_owned(),
            None,
            ours,
            bare,
        )
        .await
}

/// Everybody claims one key that is running, against an `INSERT` that loses and a `SELECT` of the
/// winner.
async fn contended(setup: Setup, store: &Arc<PostgresStore>, pool: &PgPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    ensure!(matches!(
        store.claim(&asked(run, 0)).await?,
        Claimed::Won(_)
    ));
    bare_writes(pool.clone(), id(run, 0), vec![7; 120], vec![7; 120]).await?;
    let (store, pool) = (Arc::clone(store), pool.clone());
    let ours = move |i| {
        let (store, mut ask) = (Arc::clone(&store), asked(run, 0));
        ask.token = semel::core::Token(u128::from(i) + 1);
        async move {
            ensure!(matches!(store.claim(&ask).await?, Claimed::Busy(_)));
            Ok(())
        }
    };
    let bare = move |_| {
        let pool = pool.clone();
        async move {
            let insert = sqlx::query("INSERT INTO bare VALUES ($1, $2) ON CONFLICT DO NOTHING");
            insert
                .bind(id(run, 0))
                .bind(vec![7_u8; 120])
                .execute(&pool)
                .await?;
            let select = sqlx::query("SELECT body FROM bare WHERE id = $1").bind(id(run, 0));
            select.fetch_one(&pool).await?;
            Ok(())
        }
    };
    setup
        .compare(
            format!("PostgreSQL: contended, {CALLERS} callers, one key"),
            None,
            ours,
            bare,
        )
        .await
}

/// A transfer with its record in the same transaction, against the transfer alone.
async fn transactional(setup: Setup, url: &str, pool: &PgPool) -> anyhow::Result<Row> {
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
    setup
        .compare(
            "PostgreSQL: transactional".to_owned(),
            Some(0.80),
            ours,
            bare,
        )
        .await
}

/// A small business transaction: look, take, give, note.
async fn transfer(tx: &mut sqlx::PgConnection, i: u64) -> Result<(), sqlx::Error> {
    let account = |salt: u64| {
        let mixed = i.wrapping_add(salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        i64::try_from(mixed % ACCOUNTS).unwrap_or(0)
    };
    // In one order, so that two transfers never wait for each other.
    let (low, high) = (account(0).min(account(7)), account(0).max(account(7)));
    let look = sqlx::query("SELECT amount FROM accounts WHERE id = $1").bind(low);
    look.fetch_one(&mut *tx).await?;
    for (id, amount) in [(low, -1_i64), (high, 1)] {
        let update = sqlx::query("UPDATE accounts SET amount = amount + $2 WHERE id = $1");
        update.bind(id).bind(amount).execute(&mut *tx).await?;
    }
    let note = sqlx::query("INSERT INTO ledger (taker, giver, amount) VALUES ($1, $2, 1)");
    note.bind(low).bind(high).execute(tx).await?;
    Ok(())
}

/// What a settled record takes on disk, its index included, against a key and an answer.
async fn bytes(store: &Arc<PostgresStore>, pool: &PgPool) -> anyhow::Result<Row> {
    const RECORDS: u64 = 20_000;
    let clear = "TRUNCATE semel.records; TRUNCATE answers";
    sqlx::raw_sql(clear).execute(pool).await?;
    let run = tokio_env().entropy.next_u128();
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..8 {
        let (store, pool) = (Arc::clone(store), pool.clone());
        tasks.spawn(async move {
            for i in (part..RECORDS).step_by(8) {
                fresh_run(Arc::clone(&store), asked(run, i)).await?;
                let insert = sqlx::query("INSERT INTO answers (id, body) VALUES ($1, $2)");
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
    let size = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('semel.records') \
                UNION ALL SELECT pg_total_relation_size('answers')";
    let sizes = sqlx::query(size).fetch_all(pool).await?;
    let each = |row: usize| sizes[row].get::<i64, _>(0) as f64 / RECORDS as f64;
    Ok(bytes_row("PostgreSQL", each(0), each(1)))
}

/// Fills a database with `count` settled records, by the server itself.
pub(super) async fn fill(pool: &PgPool, count: u64) -> anyhow::Result<()> {
    let text = format!(
        "INSERT INTO semel.records (fence, created_us, written_us, retention_ms, lease_ms, attempt, max_attempts, \
         secret_id, format, state, crash, address, seal, token, fingerprint, environment, tenant, scope, hint, head, \
         body) SELECT t, t, t, 86400000, 30000, 1, 5, 0, 1, 2, 1, md5('a' || i)::uuid, md5('s' || i)::uuid, \
         md5('t' || i)::uuid, decode(repeat('01', 17), 'hex'), '', '', 'bench', 'key', '', \
         decode(repeat('07', {ANSWER_BYTES}), 'hex') FROM generate_series(1, {count}) i, \
         (SELECT semel.now_us() AS t) now"
    );
    sqlx::raw_sql(AssertSqlSafe(text)).execute(pool).await?;
    sqlx::raw_sql("VACUUM ANALYZE semel.records")
        .execute(pool)
        .await?;
    sqlx::raw_sql("CHECKPOINT").execute(pool).await?;
    Ok(())
}
