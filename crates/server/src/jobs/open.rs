//! Opening the job queue, and the reaper of jobs whose workers have crashed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use semel::Semel;
use semel_jobs::object::ObjectQueue;
use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{Error, Jobs, Queue, QueueConfig, QueueLimits};

use crate::config;

/// Opens the queue in the store of `semel`.
///
/// # Errors
/// If the store does not support a queue, or its tables cannot be created.
pub async fn open(config: &config::Jobs, semel: &Semel) -> Result<Jobs, Error> {
    let settings = QueueConfig::default()
        .with_retention(config.retention.map(|span| span.0))
        .with_max_retention(config.max_retention.0)
        .with_max_answer_bytes(config.max_result_bytes.bytes())
        .with_max_attempts(config.max_attempts)
        .with_backoff(config.backoff.0)
        .with_limits(
            QueueLimits::default()
                .with_queued_per_kind(config.max_queued_per_kind)
                .with_unfinished_per_client(config.max_unfinished_per_client)
                .with_running_per_kind(config.max_running_per_kind),
        );
    let env = semel.engine().env();
    let queue: Arc<dyn Queue> = if let Some(store) = semel.postgres() {
        let opening = PostgresQueue::open(semel.engine(), store, semel.environment(), settings);
        Arc::new(opening.await?)
    } else if let Some(store) = semel.object() {
        let environment = semel.environment();
        Arc::new(ObjectQueue::observed(
            store,
            semel.engine(),
            environment,
            settings,
        ))
    } else {
        return Err(Error::Invalid(
            "the job queue needs PostgreSQL or a bucket: postgres://… or s3://…",
        ));
    };
    let clock = Arc::clone(&env.clock);
    Ok(Jobs::new(queue, clock, semel.key_rules().clone()))
}

/// Requeues or buries jobs whose workers have crashed, at intervals, as long as the queue is in
/// use.
#[derive(Debug)]
pub struct Reaper;

impl Reaper {
    /// Starts the reaper.
    pub fn start(jobs: &Jobs, semel: &Semel, every: Duration) {
        let (queue, env): (Weak<dyn Queue>, _) =
            (Arc::downgrade(jobs.queue()), semel.engine().env().clone());
        let clock = Arc::clone(&env.clock);
        env.spawn.spawn(Box::pin(async move {
            let mut pause = every;
            loop {
                clock.sleep(pause).await;
                let Some(queue) = queue.upgrade() else { return };
                let reaped = queue.reap().await;
                pause = next_pause(pause, every, reaped.as_ref().is_ok_and(|it| it.idle));
                match reaped {
                    Ok(reaped) if reaped.requeued + reaped.buried > 0 => tracing::warn!(
                        requeued = reaped.requeued,
                        buried = reaped.buried,
                        "workers crashed: their jobs are queued again, or are dead letters"
                    ),
                    Ok(_) => {}
                    // The next interval tries again.
                    Err(error) => {
                        tracing::warn!(
                            code = error.code().as_str(),
                            "the reaper got no answer from the store"
                        );
                    }
                }
            }
        }));
    }
}

/// How many times as long as it should the reaper waits at most while no job runs.
const MOST_PAUSES: u32 = 10;

/// The pause before the next look: twice as long each time, while no job runs.
fn next_pause(pause: Duration, every: Duration, is_idle: bool) -> Duration {
    match is_idle {
        true => pause
            .saturating_mul(2)
            .min(every.saturating_mul(MOST_PAUSES)),
        false => every,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_reaper_looks_less_and_less_often() {
        let every = Duration::from_secs(1);
        let mut pause = every;
        let mut pauses = Vec::new();
        for _ in 0..5 {
            pause = next_pause(pause, every, true);
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 10, 10]);
        assert_eq!(next_pause(pause, every, false), every);
    }
}
