//! A worker, as an application would have it: notes what it does, and says so.

use std::time::Duration;

use semel_jobs::{Error, JobLease, LeaseOptions, Queue};
use sqlx::PgPool;

pub(crate) async fn work(url: &str, number: &str) {
    let queue = crate::open(url).await;
    let pool = crate::pool(url).await;
    let clock = semel::tokio_env().clock;
    let mut ask = LeaseOptions::new(&format!("worker-{number}"), &["charge"]);
    ask.most = 20;
    // A killed worker's jobs come again after this.
    ask.span = Duration::from_secs(3);
    loop {
        match queue.lease(&ask).await {
            Ok(jobs) if !jobs.is_empty() => {
                let all = jobs.iter().map(|job| run(&*queue, &pool, job));
                futures_util::future::join_all(all).await;
            }
            _ => clock.sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn run(queue: &dyn Queue, pool: &PgPool, job: &JobLease) {
    let params: serde_json::Value = serde_json::from_slice(&job.params).expect("JSON");
    let key = params["key"].as_str().expect("a key");
    let note = sqlx::query("INSERT INTO runs (job_id, key) VALUES ($1, $2)");
    let noted = note.bind(job.id.to_string()).bind(key).execute(pool).await;
    if noted.is_err() {
        return; // Somebody else will.
    }
    let answer = format!(r#"{{"done": "{key}"}}"#);
    loop {
        match queue
            .complete(job.id, job.token, answer.clone().into())
            .await
        {
            Ok(()) | Err(Error::LeaseLost | Error::NotFound) => return,
            Err(_) => {
                semel::tokio_env()
                    .clock
                    .sleep(Duration::from_millis(50))
                    .await;
            }
        }
    }
}
