//! A task queue with no server but a bucket.
//!
//! ```sh
//! export STORE_URL='s3://key:secret@bucket/tasks?endpoint=https://storage.example'
//! cargo run -- submit charge-ORD-123 4200    # again and again: the same task
//! cargo run -- submit charge-ORD-124 4200 60 # the key is kept for 60 seconds, not for 30 days
//! cargo run -- submit - 4200                 # without a key: a task each time
//! cargo run -- work                          # takes tasks until none is left
//! TASK_MS=5000 cargo run -- work             # the same, and each takes five seconds
//! cargo run -- list
//! cargo run -- play 20                       # submitters and workers that are killed, for 20 seconds
//! ```

mod play;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use semel::Semel;
use semel_jobs::object::ObjectQueue;
use semel_jobs::{Error, JobQuery, Jobs, LeaseOptions, QueueConfig};

/// What the tasks are: the type is also the scope in which their keys live.
const TASK: &str = "charge_customer";

/// How long a key is kept.
const TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The queue, in the folder of the bucket that the URL names.
async fn open(url: &str) -> anyhow::Result<Jobs> {
    // Refuses a bucket that doesn't keep to conditional writes: everybody would win there.
    let semel = Semel::open(url).await?;
    let bucket = semel.object().context("STORE_URL is of a bucket: s3://…")?;
    let config = QueueConfig::default();
    let env = semel.engine().env();
    let queue = ObjectQueue::new(bucket, env, semel.environment(), config);
    let clock = Arc::clone(&env.clock);
    Ok(Jobs::new(Arc::new(queue), clock, semel.key_rules().clone()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("STORE_URL")
        .context("set STORE_URL to a bucket, such as s3://bucket/tasks")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["submit", key, cents] => submit(&open(&url).await?, key, cents.parse()?, TTL).await,
        ["submit", key, cents, seconds] => {
            let ttl = Duration::from_secs(seconds.parse()?);
            submit(&open(&url).await?, key, cents.parse()?, ttl).await
        }
        ["orders", name, count] => orders(&open(&url).await?, name, count.parse()?).await,
        ["work"] => work(&open(&url).await?, false).await,
        ["work", "--for-ever"] => work(&open(&url).await?, true).await,
        ["list"] => list(&open(&url).await?).await,
        ["play", seconds] => play::play(&url, Duration::from_secs(seconds.parse()?)).await,
        _ => anyhow::bail!("submit KEY CENTS [SECONDS], work, list, or play SECONDS"),
    }
}

/// Submits one task, and says whether it is new. `-` is no key.
async fn submit(jobs: &Jobs, key: &str, cents: u64, ttl: Duration) -> anyhow::Result<()> {
    let input = serde_json::json!({"order": key, "cents": cents});
    let mut submission = jobs.submit(TASK, &input).idempotency_ttl(ttl);
    if key != "-" {
        submission = submission.idempotency_key(key);
    }
    let submitted = submission.await?;
    println!("{} {}", submitted.job().id, submitted.status());
    Ok(())
}

/// Submits orders; as clients do, half of them twice, and each until it is acknowledged.
async fn orders(jobs: &Jobs, name: &str, count: u32) -> anyhow::Result<()> {
    for n in (0..count).flat_map(|n| [n, n / 2]) {
        let key = format!("{name}-{n}");
        while let Err(error) = submit(jobs, &key, u64::from(n), TTL).await {
            anyhow::ensure!(is_worth_a_retry(&error), error);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

fn is_worth_a_retry(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(Error::is_retryable)
}

/// Takes tasks and does them, until none is left; a task whose worker vanished is given back first.
async fn work(jobs: &Jobs, for_ever: bool) -> anyhow::Result<()> {
    let mut ask = LeaseOptions::new(&format!("worker {}", std::process::id()), &[TASK]);
    ask.span = Duration::from_secs(2);
    ask.most = 10;
    let work = std::env::var("TASK_MS").unwrap_or_else(|_| "0".to_owned());
    let work = Duration::from_millis(work.parse().context("TASK_MS is a number")?);
    loop {
        match turn(jobs, &ask, work).await {
            Ok((_, 0)) if !for_ever => return Ok(()),
            Ok((0, _)) => {}
            Ok(_) => continue,
            // The bucket is away for a while. Whatever was leased is given back later, and done
            // then.
            Err(error) if error.is_retryable() => eprintln!("{error}"),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Takes some tasks and does them. → how many these were, and how many are left
async fn turn(jobs: &Jobs, ask: &LeaseOptions, work: Duration) -> Result<(usize, u64), Error> {
    jobs.queue().reap().await?;
    let leased = jobs.lease(ask, Duration::ZERO).await?;
    for task in &leased {
        // The work itself. Whatever it asks of other systems, it passes the task's id on: the same
        // at every start.
        eprintln!("{} begun", task.id);
        tokio::time::sleep(work).await;
        let receipt = format!(r#"{{"charged": "{}"}}"#, task.id);
        match jobs
            .queue()
            .complete(task.id, task.token, receipt.into())
            .await
        {
            Ok(()) => println!("{} done", task.id),
            // Too slow, and another has it: what that one says counts.
            Err(Error::LeaseLost) => {}
            Err(error) => return Err(error),
        }
    }
    let counts = jobs.queue().counts().await?;
    Ok((leased.len(), counts.queued + counts.running))
}

/// The newest tasks, and where they stand.
async fn list(jobs: &Jobs) -> anyhow::Result<()> {
    for task in jobs.queue().list(&JobQuery::default()).await?.jobs {
        println!(
            "{} {} {:?}, started {} times",
            task.id, task.kind, task.state, task.attempt
        );
    }
    Ok(())
}
