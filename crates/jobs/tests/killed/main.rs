//! Submitters, workers and the server, killed again and again: each key is enqueued once, each job
//! finished once, its id stays the same, and nothing is lost.
//!
//! `SEMEL_JOBS_SUBMISSIONS=50000` makes it a long run: so many by each of the four submitters.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

mod submitter;
mod worker;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel::Semel;
use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{Queue, QueueConfig};
use semel_testkit::private::PostgresServer;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const SUBMITTERS: usize = 4;
const WORKERS: usize = 8;

/// One process is killed after so long, then another.
const KILL_EVERY: Duration = Duration::from_millis(1_500);

/// What the processes note, apart from what the queue keeps.
const TABLES: &str = "\
    CREATE TABLE acks (submitter int NOT NULL, position bigint NOT NULL, key text NOT NULL, job_id text NOT NULL, \
    status text NOT NULL, PRIMARY KEY (submitter, position)); \
    CREATE TABLE runs (id bigserial, job_id text NOT NULL, key text NOT NULL)";

fn submissions() -> u64 {
    let asked = std::env::var("SEMEL_JOBS_SUBMISSIONS").ok();
    asked.map_or(1_500, |asked| asked.parse().expect("a number"))
}

/// The queue, as each of the processes opens it: again and again, as the server may be about to
/// restart.
pub(crate) async fn open(url: &str) -> Arc<dyn Queue> {
    let url = format!("{url}?max_connections=4");
    let clock = semel::tokio_env().clock;
    loop {
        if let Ok(semel) = Semel::open(&url).await {
            let store = semel.postgres().expect("PostgreSQL");
            let config = QueueConfig::default();
            if let Ok(queue) = PostgresQueue::open(semel.engine(), store, "", config).await {
                return Arc::new(queue);
            }
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn pool(url: &str) -> PgPool {
    let options = PgPoolOptions::new().max_connections(2);
    options.connect_lazy(url).expect("a URL")
}

/// A process that works until it is killed: this program again, as one of the ignored tests.
struct Process {
    child: Child,
    what: &'static str,
    number: usize,
}

impl Process {
    fn start(what: &'static str, number: usize, url: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", what, "--ignored", "--nocapture"]);
        command.env("SEMEL_JOBS_URL", url);
        command.env("SEMEL_JOBS_NUMBER", number.to_string());
        command.env("SEMEL_JOBS_SUBMISSIONS", submissions().to_string());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self {
            child: command.spawn().expect("it starts"),
            what,
            number,
        }
    }

    /// At once, as a machine that fails does; and another in its place.
    fn replace(&mut self, url: &str) {
        self.child.kill().expect("it is ours");
        let _ = self.child.wait();
        *self = Self::start(self.what, self.number, url);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn told(name: &str) -> String {
    std::env::var(name).expect("started by the other test")
}

/// What the other test starts and kills.
#[tokio::test]
#[ignore = "a process of the other test"]
async fn submitter_process() {
    let number = told("SEMEL_JOBS_NUMBER").parse().expect("a number");
    submitter::submit(&told("SEMEL_JOBS_URL"), number, submissions()).await;
    std::future::pending::<()>().await;
}

/// What the other test starts and kills.
#[tokio::test]
#[ignore = "a process of the other test"]
async fn worker_process() {
    worker::work(&told("SEMEL_JOBS_URL"), &told("SEMEL_JOBS_NUMBER")).await;
}

async fn number(pool: &PgPool, question: &'static str) -> u64 {
    let count: i64 = sqlx::query_scalar(question)
        .fetch_one(pool)
        .await
        .expect("an answer");
    u64::try_from(count).expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_is_enqueued_and_finished_once_under_kills() {
    let mut server = PostgresServer::start(&["max_connections=200"]).await;
    let url = server.url();
    let pool = pool(&url).await;
    sqlx::raw_sql(TABLES).execute(&pool).await.expect("tables");
    let queue = open(&url).await;
    let mut processes: Vec<Process> = Vec::new();
    processes.extend((0..SUBMITTERS).map(|n| Process::start("submitter_process", n, &url)));
    processes.extend((0..WORKERS).map(|n| Process::start("worker_process", n, &url)));

    let expected = submissions() * SUBMITTERS as u64;
    let seed = 7;
    let mut random = StdRng::seed_from_u64(seed);
    let mut tick = tokio::time::interval(KILL_EVERY);
    let (mut kills, mut restarts, mut requeued) = (0, 0, 0);
    loop {
        tick.tick().await;
        if let Ok(reaped) = queue.reap().await {
            requeued += reaped.requeued;
            assert_eq!(reaped.buried, 0, "no job is started so often");
        }
        let acks = number(&pool, "SELECT count(*) FROM acks").await;
        let counts = queue.counts().await.expect("an answer");
        if acks == expected && counts.queued + counts.running == 0 && kills >= 8 && restarts > 0 {
            break;
        }
        let victim = random.random_range(0..processes.len());
        processes[victim].replace(&url);
        kills += 1;
        if restarts == 0 && acks > expected / 2 {
            server.kill();
            server.restart().await;
            restarts += 1;
        }
    }
    drop(processes);
    check(&pool, expected).await;
    let rerun = number(&pool, "SELECT count(*) - count(DISTINCT job_id) FROM runs").await;
    println!(
        "{kills} processes killed, {restarts} restart of the server, {requeued} jobs requeued, {rerun} run again (seed {seed})"
    );
}

/// Counts, prints, and holds what was counted against each other.
async fn check(pool: &PgPool, expected: u64) {
    let count = |question| number(pool, question);
    let keys = count("SELECT count(DISTINCT key) FROM acks").await;
    let duplicates = count("SELECT count(*) FROM acks WHERE status <> 'accepted'").await;
    let jobs = count("SELECT count(*) FROM semel.jobs").await;
    let done = count("SELECT count(*) FROM semel.jobs WHERE state = 3").await;
    let records =
        count("SELECT count(*) FROM semel.records WHERE scope = 'job:charge' AND state = 2").await;
    println!(
        "{expected} submissions acknowledged, {duplicates} of them as duplicates; {keys} keys, {jobs} jobs, {done} done, \
         {records} records completed"
    );
    assert_eq!(count("SELECT count(*) FROM acks").await, expected);
    assert!(duplicates * 100 > expected * 25, "there were duplicates");
    assert_eq!(
        jobs, keys,
        "each key was enqueued once, and nothing else was"
    );
    assert_eq!(done, keys, "each job was finished, and nothing was lost");
    assert_eq!(records, keys, "each record has its answer");
    let twice = "SELECT count(*) FROM (SELECT key FROM acks GROUP BY key HAVING count(DISTINCT job_id) > 1) AS t";
    assert_eq!(count(twice).await, 0, "a key stood for two jobs");
    let moved = "SELECT count(*) FROM (SELECT key FROM runs GROUP BY key HAVING count(DISTINCT job_id) > 1) AS t";
    assert_eq!(count(moved).await, 0, "a job changed its id");
    let unknown = "SELECT count(*) FROM acks a WHERE NOT EXISTS (SELECT 1 FROM semel.jobs j \
        WHERE 'job_' || replace(j.id::text, '-', '') = a.job_id AND convert_from(j.params, 'UTF8')::json ->> 'key' = a.key)";
    assert_eq!(count(unknown).await, 0, "an acknowledged job isn't there");
    let never = "SELECT count(*) FROM semel.jobs j WHERE NOT EXISTS (SELECT 1 FROM runs r \
        WHERE 'job_' || replace(j.id::text, '-', '') = r.job_id)";
    assert_eq!(count(never).await, 0, "a job was finished that never ran");
}
