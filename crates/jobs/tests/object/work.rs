//! Workers on a bucket.

use std::time::Duration;

use semel_jobs::{Error, JobFailure, JobQuery, JobState, LeaseOptions, SubmitOutcome};
use semel_testkit::http_proxy::HttpFault;

use crate::support::Bench;

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn many_workers_never_have_the_same_task() {
    let bench = Bench::new().await;
    for n in 0..12 {
        bench.submit(&format!("k-{n}"), n).await;
    }
    let workers = (0..4).map(|_| async {
        let mut taken = Vec::new();
        while let Some(leased) = bench.take(LONG).await {
            taken.push(leased.id);
        }
        taken
    });
    let mut all = futures_util::future::join_all(workers).await.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 12);
    assert_eq!(bench.jobs.queue().counts().await.unwrap().running, 12);
}

#[tokio::test]
async fn a_worker_that_vanished_loses_the_task_which_keeps_its_id() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let queue = bench.jobs.queue();
    let first = bench.take(Duration::from_millis(10)).await.unwrap();
    let clock = semel::tokio_env().clock;
    let mut requeued = 0;
    while requeued == 0 {
        // The lease, and the margin of a clock that tells seconds.
        clock.sleep(Duration::from_millis(300)).await;
        requeued = queue.reap().await.unwrap().requeued;
    }
    let second = bench.take(LONG).await.unwrap();
    assert_eq!((second.id, second.attempt), (job.id, 2));
    let late = queue.complete(first.id, first.token, "1".into()).await;
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");
    queue
        .heartbeat(second.id, second.token, LONG)
        .await
        .unwrap();
    queue
        .complete(second.id, second.token, "2".into())
        .await
        .unwrap();
    queue
        .complete(second.id, second.token, "2".into())
        .await
        .unwrap();
}

#[tokio::test]
async fn failures_are_tried_again_and_then_buried() {
    let bench = Bench::new().await;
    let submit = || {
        let submit = bench
            .jobs
            .submit("charge_customer", &1)
            .idempotency_key("k-1");
        submit.max_attempts(2)
    };
    let job = submit().await.unwrap().job();
    let queue = bench.jobs.queue();
    let again = JobFailure::again("no luck").with_delay(Duration::ZERO);
    for expected in [JobState::Queued, JobState::Dead] {
        let leased = bench.take(LONG).await.unwrap();
        assert_eq!(
            queue.fail(leased.id, leased.token, &again).await.unwrap(),
            expected
        );
    }
    assert_eq!(
        submit().await.unwrap(),
        SubmitOutcome::Failed(job, "no luck".to_owned())
    );
    let dead = JobQuery::default().with_state(JobState::Dead);
    assert_eq!(queue.list(&dead).await.unwrap().jobs.len(), 1);
    queue.retry(job.id).await.unwrap();
    assert_eq!(bench.take(LONG).await.unwrap().id, job.id);
}

/// A bucket that takes no writes for a while has not given the task to another.
#[tokio::test]
async fn writes_that_fail_are_not_told_as_a_lost_lease() {
    let direct = Bench::new().await;
    let (proxy, bench) = direct.behind_a_proxy().await;
    bench.submit("k-1", 5).await;
    let leased = bench.take(LONG).await.unwrap();
    let queue = bench.jobs.queue();
    for _ in 0..8 {
        proxy.next("PUT", HttpFault::Refused(503));
    }
    let told = queue.complete(leased.id, leased.token, "1".into()).await;
    let error = told.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(proxy.armed(), 0);
    let told = queue.complete(leased.id, leased.token, "1".into()).await;
    told.unwrap();
}

#[tokio::test]
async fn one_task_that_cant_be_changed_keeps_no_other_from_being_requeued() {
    let direct = Bench::new().await;
    let (proxy, bench) = direct.behind_a_proxy().await;
    for n in 0..2 {
        bench.submit(&format!("k-{n}"), n).await;
        let leased = bench.take(LONG).await.unwrap();
        // Its worker vanished long ago.
        let lapsed = |task: &mut serde_json::Value| task["due_us"] = 1.into();
        direct.change_task(leased.id, lapsed).await;
    }
    let queue = bench.jobs.queue();
    proxy.next("PUT", HttpFault::Refused(403));
    assert!(queue.reap().await.is_err());
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.queued, counts.running), (1, 1));
}

#[tokio::test]
async fn answer_is_kept_for_its_retention_after_a_late_end() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    // Submitted long ago, to be kept for a day.
    let long_ago = |task: &mut serde_json::Value| {
        task["created_at"] = "2020-01-01T00:00:00Z".into();
        task["expires_at"] = "2020-01-02T00:00:00Z".into();
    };
    bench.change_task(job.id, long_ago).await;
    let leased = bench.take(LONG).await.unwrap();
    let queue = bench.jobs.queue();
    queue
        .complete(leased.id, leased.token, "1".into())
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(queue.reap().await.unwrap().swept, 0);
    }
    let found = queue.look(job.id).await.unwrap().unwrap();
    assert_eq!(found.state, JobState::Done);
    assert_eq!(queue.counts().await.unwrap().queued, 0);
}

#[tokio::test]
async fn tenants_have_tasks_of_their_own() {
    let bench = Bench::new().await;
    let job = bench
        .jobs
        .submit("charge_customer", &1)
        .tenant("acme")
        .await
        .unwrap()
        .job();
    assert!(bench.take(LONG).await.is_none());
    let mut ask = LeaseOptions::new("w", &["charge_customer"]);
    ask.tenant = "acme".to_owned();
    let leased = bench.jobs.queue().lease(&ask).await.unwrap().pop().unwrap();
    assert_eq!(leased.id, job.id);
    bench
        .jobs
        .queue()
        .complete(leased.id, leased.token, "1".into())
        .await
        .unwrap();
    let found = bench.jobs.queue().look(job.id).await.unwrap().unwrap();
    assert_eq!(
        (found.tenant.as_str(), found.state),
        ("acme", JobState::Done)
    );
}

#[tokio::test]
async fn a_damaged_file_stops_nobody_and_is_counted() {
    let bench = Bench::new().await;
    let damaged = bench.submit("k-1", 1).await.job();
    let path = bench.queue.task_path("", damaged.id);
    let (_, version) = bench.store.get(&path).await.unwrap().expect("a task");
    let nonsense = "{\"task_id\": 7".into();
    let written = bench.store.put(&path, nonsense, Some(&version)).await;
    assert!(written.unwrap().is_some());
    let sound = bench.submit("k-2", 2).await.job();
    let queue = bench.jobs.queue();
    assert_eq!(bench.take(LONG).await.expect("a task").id, sound.id);
    assert!(bench.take(LONG).await.is_none());
    queue.reap().await.unwrap();
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.running, counts.damaged), (1, 1));
    assert_eq!(counts.damaged_file, Some(path.to_string()));
    let listed = queue.list(&JobQuery::default()).await.unwrap().jobs;
    assert_eq!(listed.len(), 1);
    // Who asks for it is told.
    let asked = queue.look(damaged.id).await;
    assert!(matches!(asked, Err(Error::Store(_))), "{asked:?}");
}

#[tokio::test]
async fn a_dead_letter_that_another_process_retries_is_given_out_again() {
    let operator = Bench::new().await;
    let worker = operator.another().await;
    let job = operator.submit("k-1", 5).await.job();
    let ask = LeaseOptions::new("w-1", &["charge_customer"]);
    // What is due by one process's idea of the time is so by another's a little later.
    let leased = worker.jobs.lease(&ask, LONG).await.unwrap().pop().unwrap();
    let failed = JobFailure::for_good("no luck");
    let failing = worker.jobs.queue().fail(leased.id, leased.token, &failed);
    assert_eq!(failing.await.unwrap(), JobState::Dead);
    assert!(worker.take(LONG).await.is_none());
    operator.jobs.queue().retry(job.id).await.unwrap();
    let again = worker.jobs.lease(&ask, Duration::from_secs(10)).await;
    let again = again.unwrap().pop().expect("the job");
    assert_eq!((again.id, again.attempt), (job.id, 1));
}

#[tokio::test]
async fn a_look_for_work_costs_one_listing_while_the_queue_is_small() {
    let (proxy, bench) = Bench::new().await.behind_a_proxy().await;
    let _ = proxy.requests();
    assert!(bench.take(LONG).await.is_none());
    assert_eq!(proxy.requests(), ["GET"]);
    bench.submit("k-1", 5).await;
    let _ = proxy.requests();
    let leased = bench.take(LONG).await.expect("a task");
    // The listing, the task, and its replacement.
    assert_eq!(proxy.requests(), ["GET", "GET", "PUT"]);
    // The tenants, the tasks, and the one that runs.
    let queue = bench.jobs.queue();
    assert!(!queue.reap().await.unwrap().idle, "a lease may lapse");
    assert_eq!(proxy.requests(), ["GET", "GET", "GET"]);
    let done = queue.complete(leased.id, leased.token, "1".into()).await;
    done.unwrap();
    assert!(queue.reap().await.unwrap().idle);
    let _ = proxy.requests();
    assert!(queue.reap().await.unwrap().idle);
    assert_eq!(proxy.requests(), ["GET", "GET"]);
}
