//! What these tests share: a database of each test's own.

use std::sync::Arc;
use std::time::Duration;

use semel::Semel;
use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{JobLease, Jobs, LeaseOptions, QueueConfig, SubmitOutcome};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// A queue, in a database that nobody else uses.
pub(crate) struct Bench {
    pub(crate) jobs: Jobs,
    pub(crate) semel: Semel,
    pub(crate) pool: PgPool,
    pub(crate) url: String,
    /// Dropped with it, by the one that made it.
    is_owner: bool,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !self.is_owner {
            return;
        }
        let url = self.url.clone();
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let (before, _) = url.split_once('?').unwrap_or((&url, ""));
                let (_, name) = before.rsplit_once('/').expect("a database in the URL");
                let pool = PgPool::connect(&variable("SEMEL_TEST_POSTGRES_URL")).await;
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let drop = sqlx::raw_sql(sqlx::AssertSqlSafe(drop));
                let _ = drop.execute(&pool.expect("the server")).await;
            });
        });
        let _ = dropping.join();
    }
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

/// A new database of the shared server.
pub(crate) async fn own_url() -> String {
    let shared = variable("SEMEL_TEST_POSTGRES_URL");
    let name = format!("jobs_{:032x}", semel::tokio_env().entropy.next_u128());
    let pool = PgPool::connect(&shared).await.expect("the server");
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create)
        .execute(&pool)
        .await
        .expect("a database");
    let (before, after) = shared.split_once('?').unwrap_or((&shared, ""));
    let (server, _) = before.rsplit_once('/').expect("a database in the URL");
    format!("{server}/{name}?{after}")
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(QueueConfig::default()).await
    }

    pub(crate) async fn with(config: QueueConfig) -> Self {
        let mut bench = Self::at(own_url().await, config).await;
        bench.is_owner = true;
        bench
    }

    pub(crate) async fn at(url: String, config: QueueConfig) -> Self {
        let semel = Semel::open(&url).await.expect("a store");
        let store = semel.postgres().expect("PostgreSQL");
        let queue = PostgresQueue::open(semel.engine(), store, "", config).await;
        let clock = Arc::clone(&semel.engine().env().clock);
        let rules = semel.key_rules().clone();
        let jobs = Jobs::new(Arc::new(queue.expect("a queue")), clock, rules);
        let pool = PgPoolOptions::new().max_connections(2).connect(&url).await;
        Self {
            jobs,
            semel,
            pool: pool.expect("the database"),
            url,
            is_owner: false,
        }
    }

    /// Another process on the same database, as far as that can be had in one.
    pub(crate) async fn another(&self) -> Self {
        Self::at(self.url.clone(), QueueConfig::default()).await
    }

    pub(crate) async fn submit(&self, key: &str, amount: u64) -> SubmitOutcome {
        self.try_submit(key, amount).await.expect("an answer")
    }

    pub(crate) async fn try_submit(
        &self,
        key: &str,
        amount: u64,
    ) -> Result<SubmitOutcome, semel_jobs::Error> {
        let params = serde_json::json!({"order": key, "amount": amount});
        self.jobs
            .submit("charge", &params)
            .idempotency_key(key)
            .await
    }

    /// The next job, if there is one.
    pub(crate) async fn take(&self, span: Duration) -> Option<JobLease> {
        let mut ask = LeaseOptions::new("w-1", &["charge"]);
        ask.span = span;
        self.jobs
            .queue()
            .lease(&ask)
            .await
            .expect("an answer")
            .pop()
    }

    pub(crate) async fn take_one(&self) -> JobLease {
        self.take(Duration::from_secs(30)).await.expect("a job")
    }

    pub(crate) async fn complete(&self, leased: &JobLease, answer: &'static str) {
        let queue = self.jobs.queue();
        let done = queue.complete(leased.id, leased.token, answer.into()).await;
        done.expect("it is the worker's");
    }

    pub(crate) async fn count(&self, question: &'static str) -> i64 {
        sqlx::query_scalar(question)
            .fetch_one(&self.pool)
            .await
            .expect("a number")
    }

    pub(crate) async fn run(&self, statement: &'static str) -> u64 {
        let done = sqlx::query(statement).execute(&self.pool).await;
        done.expect("it runs").rows_affected()
    }
}
