//! `bench jobs`: the queue in PostgreSQL, against the bare statements that do the same on a plain
//! table.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use semel::core::Key;
use semel::{Semel, tokio_env};
use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{LeaseOptions, NewJob, Queue, QueueConfig};
use sqlx::postgres::PgPool;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Row as _};

use crate::stores::compare;
use crate::stores::postgres::Database;
use semel_bench_core::report::{Row, median, publish};

/// What a plain queue would be.
const BARE: &str = "CREATE TABLE bare (id uuid PRIMARY KEY, key text NOT NULL UNIQUE, state smallint NOT NULL, \
    due timestamptz NOT NULL, lease uuid, params bytea NOT NULL, result bytea); \
    CREATE INDEX ON bare (due) WHERE state = 1";

/// How often a latency is taken, and how many jobs go at once.
const LOOKS: usize = 400;
/// Looks that don't count.
const WARM_UP: usize = 50;
const BULK: usize = 1000;

const PARAMS: &str =
    r#"{"order": "ORD-123", "amount": 100, "currency": "EUR", "note": "as agreed"}"#;
const ANSWER: &str = r#"{"charge": "ch_1", "amount": 100}"#;

pub(crate) fn bench(depth: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(rows(depth))?;
    publish("jobs", &rows)
}

async fn rows(depth: u64) -> anyhow::Result<Vec<Row>> {
    let database = Database::make("jobs").await?;
    let pool = database.pool().await?;
    sqlx::raw_sql(BARE).execute(&pool).await?;
    let queue: Arc<dyn Queue> = Arc::new(open(&database).await?);
    let rows = vec![
        whole(&queue, &pool).await?,
        bulk(&queue).await?,
        deep(depth).await?,
    ];
    pool.close().await;
    drop(queue);
    database.discard().await?;
    Ok(rows)
}

fn job(key: &str) -> anyhow::Result<NewJob> {
    let mut job = NewJob::new("bench", PARAMS);
    job.key = Some(Key::parse(key)?);
    Ok(job)
}

async fn submit(queue: &dyn Queue, key: &str) -> anyhow::Result<()> {
    let answer = queue.enqueue(vec![job(key)?]).await.pop();
    ensure!(!answer.context("an answer")??.is_duplicate());
    Ok(())
}

/// Submit, lease and complete, against the three statements.
async fn whole(queue: &Arc<dyn Queue>, pool: &PgPool) -> anyhow::Result<Row> {
    let run = tokio_env().entropy.next_u128();
    let (queue, pool) = (Arc::clone(queue), pool.clone());
    let name = "submit + lease + complete".to_owned();
    compare(
        name,
        Some(0.8),
        move |i| ours(Arc::clone(&queue), format!("k-{run:x}-{i}")),
        move |i| bare(pool.clone(), format!("k-{run:x}-{i}")),
    )
    .await
}

async fn ours(queue: Arc<dyn Queue>, key: String) -> anyhow::Result<()> {
    submit(&*queue, &key).await?;
    let ask = LeaseOptions::new("w", &["bench"]);
    for leased in queue.lease(&ask).await? {
        queue
            .complete(leased.id, leased.token, ANSWER.into())
            .await?;
    }
    Ok(())
}

async fn bare(pool: PgPool, key: String) -> anyhow::Result<()> {
    let chance = || Uuid::from_u128(tokio_env().entropy.next_u128());
    let insert = "INSERT INTO bare (id, key, state, due, params) VALUES ($1, $2, 1, clock_timestamp(), $3) \
                  ON CONFLICT (key) DO NOTHING RETURNING id";
    let insert = sqlx::query(insert).bind(chance()).bind(key);
    ensure!(
        insert
            .bind(PARAMS.as_bytes())
            .fetch_optional(&pool)
            .await?
            .is_some()
    );
    let take = "UPDATE bare SET state = 2, lease = $1, due = clock_timestamp() + interval '30 s' WHERE id = \
                (SELECT id FROM bare WHERE state = 1 AND due <= now() ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED) \
                RETURNING id, params";
    let lease = chance();
    if let Some(row) = sqlx::query(take).bind(lease).fetch_optional(&pool).await? {
        let id: Uuid = row.try_get(0)?;
        let end = "UPDATE bare SET state = 3, result = $3 WHERE id = $1 AND lease = $2";
        let end = sqlx::query(end)
            .bind(id)
            .bind(lease)
            .bind(ANSWER.as_bytes());
        ensure!(end.execute(&pool).await?.rows_affected() == 1);
    }
    Ok(())
}

/// Jobs a second: a thousand at once, against one after the other.
async fn bulk(queue: &Arc<dyn Queue>) -> anyhow::Result<Row> {
    eprintln!("measuring: bulk submit");
    let clock = tokio_env().clock;
    let run = tokio_env().entropy.next_u128();
    let (mut many, mut single) = (Vec::new(), Vec::new());
    for round in 0..12 {
        let jobs: anyhow::Result<Vec<NewJob>> = (0..BULK)
            .map(|n| job(&format!("b-{run:x}-{round}-{n}")))
            .collect();
        let began = clock.now();
        let answers = queue.enqueue(jobs?).await;
        let took = clock.now().since(began);
        ensure!(
            answers
                .into_iter()
                .all(|answer| answer.is_ok_and(|answer| !answer.is_duplicate()))
        );
        many.push(1000.0 / took.as_secs_f64());
        let began = clock.now();
        for n in 0..50 {
            submit(&**queue, &format!("s-{run:x}-{round}-{n}")).await?;
        }
        single.push(50.0 / clock.now().since(began).as_secs_f64());
    }
    let (many, single) = (median(many), median(single));
    Ok(Row::at_least(
        "bulk submit of 1,000, against single",
        "/s",
        many,
        single,
        Some(10.0),
    ))
}

/// The time of a lease while `depth` jobs wait, against a thousand: two databases, taking turns.
async fn deep(depth: u64) -> anyhow::Result<Row> {
    eprintln!("measuring: a lease at a depth of {depth}");
    let (shallow, deep) = (Depth::make(1000).await?, Depth::make(depth).await?);
    let (mut shallows, mut deeps) = (Vec::new(), Vec::new());
    for look in 0..LOOKS + WARM_UP {
        let (one, other) = (shallow.lease_micros().await?, deep.lease_micros().await?);
        if look >= WARM_UP {
            shallows.push(one);
            deeps.push(other);
        }
    }
    shallow.database.discard().await?;
    deep.database.discard().await?;
    let name = format!("lease at a depth of {depth}, against 1,000");
    let (deeps, shallows) = (median(deeps), median(shallows));
    Ok(Row::at_most(name, "µs", deeps, shallows, Some(1.5)))
}

/// A queue in which so many jobs wait.
struct Depth {
    database: Database,
    queue: PostgresQueue,
}

impl Depth {
    async fn make(depth: u64) -> anyhow::Result<Self> {
        let database = Database::make("depth").await?;
        let queue = open(&database).await?;
        // One by the queue itself, and copies of it until there are enough.
        let one = queue.enqueue(vec![NewJob::new("deep", PARAMS)]).await.pop();
        one.context("an answer")??;
        let copies = depth + (LOOKS + WARM_UP) as u64;
        let copy = format!(
            "INSERT INTO semel.jobs (id, request_id, lane, state, priority, attempt, max_attempts, secret_id, due_us, \
             created_us, environment, tenant, kind, scope, client, hint, params, retention_ms) \
             SELECT gen_random_uuid(), request_id, lane, 1, priority, 0, max_attempts, 0, due_us + n, created_us, environment, \
             tenant, kind, scope, client, hint, params, retention_ms FROM semel.jobs, generate_series(1, {copies}) AS n"
        );
        let pool = database.pool().await?;
        sqlx::raw_sql(AssertSqlSafe(copy)).execute(&pool).await?;
        sqlx::raw_sql("VACUUM ANALYZE semel.jobs")
            .execute(&pool)
            .await?;
        sqlx::raw_sql("CHECKPOINT").execute(&pool).await?;
        pool.close().await;
        Ok(Self { database, queue })
    }

    async fn lease_micros(&self) -> anyhow::Result<f64> {
        let clock = tokio_env().clock;
        let began = clock.now();
        let leased = self.queue.lease(&LeaseOptions::new("w", &["deep"])).await?;
        let took = clock.now().since(began);
        ensure!(leased.len() == 1, "there are jobs");
        Ok(took.as_secs_f64() * 1e6)
    }
}

async fn open(database: &Database) -> anyhow::Result<PostgresQueue> {
    let semel = Semel::open(&format!("{}?max_connections=16", database.url)).await?;
    let store = semel.postgres().context("PostgreSQL")?;
    Ok(PostgresQueue::open(semel.engine(), store, "", QueueConfig::default()).await?)
}
