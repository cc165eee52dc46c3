//! JetStream to PostgreSQL while everything is killed: consumers with `kill -9`, the server too.
//! Each effect is there exactly once, and in order.
//!
//! `SEMEL_STREAM_MESSAGES=200000` makes it a long run.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

mod consumer;
mod producer;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use semel_testkit::private::{NatsServer, PostgresServer};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// What the consumers share.
pub(crate) const STREAM: &str = "operations";
pub(crate) const DURABLE: &str = "effects";

/// Two consumers at a time; one of them is killed after so long, then the other.
const KILL_EVERY: Duration = Duration::from_millis(1_500);

/// So many kills of consumers for each restart of the server.
const KILLS_PER_RESTART: usize = 4;

fn messages() -> u64 {
    let asked = std::env::var("SEMEL_STREAM_MESSAGES").ok();
    asked.map_or(12_000, |asked| asked.parse().expect("a number"))
}

/// A process that consumes until it is killed: this program again, as [`consumer_process`].
struct Process(Child);

impl Process {
    fn start(nats: &str, postgres: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "consumer_process", "--ignored", "--nocapture"]);
        command
            .env("SEMEL_STREAM_NATS", nats)
            .env("SEMEL_STREAM_POSTGRES", postgres);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().expect("it starts"))
    }

    /// At once, as a machine that fails does.
    fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other test starts and kills.
#[tokio::test]
#[ignore = "a process of the other test"]
async fn consumer_process() {
    let url = |name| std::env::var(name).expect("started by the other test");
    consumer::consume(&url("SEMEL_STREAM_NATS"), &url("SEMEL_STREAM_POSTGRES")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_happen_once_while_consumers_and_the_server_are_killed() {
    let postgres = PostgresServer::start(&[]).await;
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect(&postgres.url())
        .await
        .unwrap();
    semel_stream::postgres::migrate(&pool).await.unwrap();
    let table = "CREATE TABLE effects (id bigserial, session text NOT NULL, seqno bigint NOT NULL)";
    sqlx::raw_sql(table).execute(&pool).await.unwrap();
    let mut nats = NatsServer::start().await;
    make_stream(&nats.url()).await;

    let expected = messages();
    let sending = tokio::spawn(producer::send(nats.url(), expected));
    let mut consumers: Vec<Process> = (0..2)
        .map(|_| Process::start(&nats.url(), &postgres.url()))
        .collect();
    let (mut kills, mut restarts) = (0, 0);
    let mut tick = tokio::time::interval(KILL_EVERY);
    tick.tick().await;
    loop {
        tick.tick().await;
        if sending.is_finished() && count(&pool).await >= expected && kills >= 4 {
            break;
        }
        consumers[kills % 2].kill();
        kills += 1;
        if kills % KILLS_PER_RESTART == 0 {
            nats.kill();
            nats.restart().await;
            restarts += 1;
        }
        consumers[(kills - 1) % 2] = Process::start(&nats.url(), &postgres.url());
    }
    let sent = sending.await.unwrap();
    // What is still in flight is a duplicate. Let it come.
    tick.tick().await;
    println!(
        "{expected} operations, {sent} messages, {kills} consumers killed, {restarts} restarts"
    );
    assert!(restarts > 0 && sent > expected);
    assert_eq!(count(&pool).await, expected);
    let distinct = "SELECT count(*) FROM (SELECT DISTINCT session, seqno FROM effects) AS d";
    assert_eq!(number(&pool, distinct).await, expected);
    let disorder = "SELECT count(*) FROM (SELECT seqno - lag(seqno) OVER (PARTITION BY session ORDER BY id) AS step \
                    FROM effects WHERE session <> 'keyed') AS s WHERE step <> 1";
    assert_eq!(number(&pool, disorder).await, 0);
}

async fn make_stream(url: &str) {
    let context = jetstream::new(async_nats::connect(url).await.expect("the server"));
    let stream = context.create_stream(jetstream::stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![STREAM.to_owned()],
        ..Default::default()
    });
    let stream = stream.await.expect("a stream");
    let consumer = stream.create_consumer(pull::Config {
        durable_name: Some(DURABLE.to_owned()),
        ack_policy: AckPolicy::Explicit,
        // A killed consumer's messages come again after this.
        ack_wait: Duration::from_secs(2),
        max_ack_pending: 5_000,
        ..Default::default()
    });
    consumer.await.expect("a consumer");
}

async fn count(pool: &PgPool) -> u64 {
    number(pool, "SELECT count(*) FROM effects").await
}

async fn number(pool: &PgPool, question: &'static str) -> u64 {
    let count: i64 = sqlx::query_scalar(question)
        .fetch_one(pool)
        .await
        .expect("an answer");
    u64::try_from(count).expect("a count")
}
