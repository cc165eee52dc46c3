//! Submitters, workers and a reaper, each a process of its own, killed at random.
//!
//! ```sh
//! DATABASE_URL=postgres://me@127.0.0.1/mesh cargo run -- play 20     # all of them, for 20 seconds
//! DATABASE_URL=… cargo run -- submit orders 1000                     # or one by one
//! DATABASE_URL=… cargo run -- work
//! DATABASE_URL=… cargo run -- reap
//! ```

mod play;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use semel::Semel;
use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{Error, Jobs, LeaseOptions, QueueConfig};

/// The queue, beside the records of its keys.
async fn open(url: &str) -> anyhow::Result<Jobs> {
    let semel = Semel::open(url).await?;
    let store = semel.postgres().context("DATABASE_URL is of PostgreSQL")?;
    let queue = PostgresQueue::open(semel.engine(), store, "", QueueConfig::default()).await?;
    let clock = Arc::clone(&semel.engine().env().clock);
    Ok(Jobs::new(Arc::new(queue), clock, semel.key_rules().clone()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context("set DATABASE_URL to a PostgreSQL database")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["submit", name, count] => submit(&open(&url).await?, name, count.parse()?).await,
        ["work"] => work(&open(&url).await?).await,
        ["reap"] => reap(&open(&url).await?).await,
        ["play", seconds] => play::play(&url, Duration::from_secs(seconds.parse()?)).await,
        _ => anyhow::bail!("submit NAME COUNT, work, reap, or play SECONDS"),
    }
}

/// Submits each order until it is acknowledged; and, as clients do, some of them again.
async fn submit(jobs: &Jobs, name: &str, count: u32) -> anyhow::Result<()> {
    for n in (0..count).flat_map(|n| [n, n / 2]) {
        let key = format!("{name}-{n}");
        loop {
            let order = serde_json::json!({"order": key});
            match jobs
                .submit("order", &order)
                .idempotency_key(&key)
                .max_attempts(100)
                .await
            {
                Ok(_) => break,
                Err(error) if error.is_retryable() => {
                    tokio::time::sleep(Duration::from_millis(100)).await
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Takes orders, handles them, says so.
async fn work(jobs: &Jobs) -> anyhow::Result<()> {
    let mut ask = LeaseOptions::new(&format!("worker {}", std::process::id()), &["order"]);
    ask.span = Duration::from_secs(2);
    loop {
        let Ok(leased) = jobs.lease(&ask, Duration::from_secs(5)).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        for job in leased {
            // The work itself. Whatever it asks of other systems, it passes `job.id` on: the same
            // at every start.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let answer = format!(r#"{{"handled": "{}"}}"#, job.id);
            loop {
                match jobs
                    .queue()
                    .complete(job.id, job.token, answer.clone().into())
                    .await
                {
                    Err(error) if error.is_retryable() => {
                        tokio::time::sleep(Duration::from_millis(100)).await
                    }
                    // Too slow, and another has it: what that one says counts.
                    Ok(()) | Err(Error::LeaseLost) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

/// Gives the jobs of workers that vanished to others. Any number of processes may do this.
async fn reap(jobs: &Jobs) -> anyhow::Result<()> {
    loop {
        if let Ok(reaped) = jobs.queue().reap().await
            && reaped.requeued > 0
        {
            println!(
                "{} jobs of workers that vanished wait again",
                reaped.requeued
            );
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
