//! Jobs: submitted many times, and run in a transaction under the job's own ID.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::Key;
use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{JobLease, LeaseOptions, NewJob, Queue, QueueConfig};

use super::bank::Plan;
use super::client::Client;
use crate::clock::pass;
use crate::worker::ENVIRONMENT;

pub(super) const DOOR: &str = "job";
const KIND: &str = "charge";
const SPAN: Duration = Duration::from_secs(2);

/// Opens the queue, as soon as possible.
pub(super) async fn queue(client: &Client) -> PostgresQueue {
    loop {
        let store = client.semel.postgres().expect("PostgreSQL");
        let config = QueueConfig::default();
        match PostgresQueue::open(client.semel.engine(), store, ENVIRONMENT, config).await {
            Ok(queue) => return queue,
            Err(error) => {
                eprintln!("client: {error}");
                pass(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The job of a name.
pub(super) fn job(name: &str) -> NewJob {
    let mut job = NewJob::new(KIND, format!("{{\"name\":\"{name}\"}}"));
    job.key = Some(Key::parse(name).expect("plain text"));
    job.max_attempts = Some(1_000);
    job
}

/// Submits new and known jobs.
pub(super) async fn submit(client: Arc<Client>, mut rng: StdRng) {
    let queue = queue(&client).await;
    loop {
        let name = client.name(&mut rng);
        for submitted in queue.enqueue(vec![job(&name)]).await {
            match submitted {
                Ok(submitted) => client.tell(DOOR, &name, &submitted.job().id.to_string()),
                Err(_) => pass(Duration::from_millis(20)).await,
            }
        }
        pass(Duration::from_millis(rng.random_range(0..20))).await;
    }
}

/// Works, and sometimes requeues the jobs of vanished workers.
pub(super) async fn work(client: Arc<Client>, mut rng: StdRng) {
    let queue = queue(&client).await;
    loop {
        if rng.random_bool(0.05) {
            let _ = queue.reap().await;
        }
        if !matches!(work_once(&client, &queue, Some(&mut rng)).await, Ok(true)) {
            pass(Duration::from_millis(30)).await;
        }
    }
}

/// Returns whether there was a job.
pub(super) async fn work_once(
    client: &Client,
    queue: &PostgresQueue,
    mut rng: Option<&mut StdRng>,
) -> Result<bool> {
    let mut ask = LeaseOptions::new("worker", &[KIND]);
    (ask.most, ask.span) = (4, SPAN);
    let jobs = queue.lease(&ask).await?;
    for job in &jobs {
        // Another worker gets it when its visibility timeout is over.
        let _ = run(client, queue, job, rng.as_deref_mut()).await;
    }
    Ok(!jobs.is_empty())
}

async fn run(
    client: &Client,
    queue: &PostgresQueue,
    job: &JobLease,
    rng: Option<&mut StdRng>,
) -> Result<()> {
    let params: serde_json::Value = serde_json::from_slice(&job.params)?;
    let name = params["name"].as_str().context("a job without a name")?;
    let entry = client.entry(DOOR, name);
    let plan = match rng {
        Some(rng) => Plan::of(entry, rng),
        None => Plan::plain(entry),
    };
    let call = client.call("ledger-job", &job.id.to_string());
    let answer = client.bank.run_in(call, plan).await?;
    let answer = serde_json::to_vec(&answer)?;
    queue.complete(job.id, job.token, answer.into()).await?;
    Ok(())
}

/// Works until no job is left.
pub(super) async fn drain(client: &Client) -> Result<()> {
    let queue = queue(client).await;
    for _ in 0..2_000 {
        queue.reap().await?;
        if work_once(client, &queue, None).await? {
            continue;
        }
        let counts = queue.counts().await?;
        if counts.queued + counts.running == 0 {
            return Ok(());
        }
        pass(Duration::from_millis(50)).await;
    }
    anyhow::bail!("there are jobs that nobody can end")
}
