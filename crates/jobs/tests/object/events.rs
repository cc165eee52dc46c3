//! The events of a queue in a bucket: an observer sees what happens to keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::Semel;
use semel_core::event::{Event, Observer, Step};
use semel_jobs::object::ObjectQueue;
use semel_jobs::{Error, JobFailure, JobId, Jobs, QueueConfig};

use crate::support::Bench;

/// A line for each event: its place, who and what, and the step.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn observe(&self, event: &Event<'_>) {
        let step = match event.step {
            Step::Claimed { attempt, .. } => format!("claimed, attempt {attempt}"),
            Step::Busy { why, .. } => format!("busy, {}", why.as_str()),
            Step::Replayed { state, .. } => format!("replayed, {state:?}"),
            Step::Mismatched { asked, original } => {
                let is_told = asked != original.fingerprint && original.requested_at.is_some();
                format!("mismatched, {is_told}")
            }
            Step::Settled { state, bytes, .. } => format!("settled, {state:?}, {bytes} bytes"),
            Step::JobSubmitted { job } => format!("submitted, {}", JobId::from_u128(job)),
            Step::Answered { .. } => return,
            other => format!("{other:?}"),
        };
        let place = format!("{}/{}", event.namespace.tenant(), event.namespace.scope());
        let who = event.actor.unwrap_or("nobody");
        let key = event.hint.as_str();
        let what = event.operation.unwrap_or_default();
        let line = format!("{place} {who} {what} [{key}] {step}");
        self.0.lock().expect("no panic").push(line);
    }
}

impl Seen {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// A queue whose engine has an observer, beside the one of the bench.
async fn observed(bench: &Bench) -> (Arc<Seen>, Jobs) {
    let seen = Arc::new(Seen::default());
    let builder = Semel::builder().observer(Arc::clone(&seen) as _);
    let semel = builder.open("memory://").await.expect("a store");
    let config = QueueConfig::default();
    let queue = ObjectQueue::observed(&bench.store, semel.engine(), "", config);
    let clock = Arc::clone(&semel.engine().env().clock);
    let jobs = Jobs::new(Arc::new(queue), clock, semel.key_rules().clone());
    (seen, jobs)
}

#[tokio::test]
async fn events_say_what_happened_to_a_key_in_a_bucket() {
    let mut bench = Bench::new().await;
    let (seen, jobs) = observed(&bench).await;
    bench.jobs = jobs;
    let place = "/job:charge_customer";
    let line = |step: &str| format!("{place} nobody charge_customer [order] {step}");

    let submitted = bench.submit("order-0815", 5).await;
    bench.submit("order-0815", 5).await;
    let conflict = bench.try_submit("order-0815", 6).await;
    assert!(matches!(conflict, Err(Error::Conflict)), "{conflict:?}");
    let made = format!("submitted, {}", submitted.job().id);
    let steps = [
        "claimed, attempt 1",
        &made,
        "busy, policy",
        "mismatched, true",
    ];
    assert_eq!(seen.take(), steps.map(line));

    let leased = bench.take(Duration::from_secs(30)).await.expect("a task");
    let queue = bench.jobs.queue();
    for _ in 0..2 {
        let done = queue.complete(leased.id, leased.token, "[1]".into()).await;
        done.expect("this worker's");
    }
    bench.submit("order-0815", 5).await;
    let ended = format!("{place} nobody charge_customer [] settled, Completed, 3 bytes");
    assert_eq!(seen.take(), [ended, line("replayed, Completed")]);
}

#[tokio::test]
async fn tasks_that_failed_for_good_are_counted_once() {
    let mut bench = Bench::new().await;
    let (seen, jobs) = observed(&bench).await;
    bench.jobs = jobs;
    bench.submit("order-0815", 5).await;
    let leased = bench.take(Duration::from_secs(30)).await.expect("a task");
    seen.take();
    let failure = JobFailure::for_good("declined");
    for _ in 0..2 {
        let failed = bench.jobs.queue().fail(leased.id, leased.token, &failure);
        failed.await.expect("this worker's");
    }
    bench.submit("order-0815", 5).await;
    let lines = seen.take();
    assert!(lines[0].ends_with("settled, Failed, 0 bytes"), "{lines:?}");
    assert!(lines[1].ends_with("replayed, Failed"), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
}
