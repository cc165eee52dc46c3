//! Workers: one at a time for a job, the same job again if one vanished (J4, J5).

use std::time::Duration;

use semel_jobs::postgres::PostgresQueue;
use semel_jobs::{
    Error, JobFailure, JobState, LeaseOptions, Queue as _, QueueConfig, SubmitOutcome,
};

use crate::support::Bench;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(30);

/// As if the lease had lapsed.
const LAPSE: &str = "UPDATE semel.jobs SET due_us = 1 WHERE state = 2";

#[tokio::test]
async fn j5_c_the_reaper_requeues_the_same_job_id() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let first = bench.take_one().await;
    assert!(bench.take(LONG).await.is_none(), "it is another's");
    let queue = bench.jobs.queue();
    assert_eq!(queue.reap().await.unwrap().requeued, 0, "its lease lives");
    bench.run(LAPSE).await;
    assert_eq!(queue.reap().await.unwrap().requeued, 1);
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    let second = bench.take_one().await;
    assert_eq!((second.id, second.attempt), (job.id, 2));
    // The first is told, and changes nothing.
    for told in [
        queue.complete(first.id, first.token, "1".into()).await,
        queue.heartbeat(first.id, first.token, LONG).await,
        queue
            .fail(first.id, first.token, &JobFailure::again("late"))
            .await
            .map(drop),
    ] {
        assert!(matches!(told, Err(Error::LeaseLost)), "{told:?}");
    }
    bench.complete(&second, "2").await;
    assert_eq!(bench.count("SELECT count(*) FROM semel.jobs").await, 1);
}

#[tokio::test]
async fn late_worker_may_complete_an_unclaimed_job() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let leased = bench.take_one().await;
    bench.run(LAPSE).await;
    bench.jobs.queue().reap().await.unwrap();
    bench.complete(&leased, "1").await;
    assert!(bench.take(LONG).await.is_none(), "it is done");
}

#[tokio::test]
async fn heartbeats_keep_a_job() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let leased = bench.take(SHORT).await.unwrap();
    let queue = bench.jobs.queue();
    queue
        .heartbeat(leased.id, leased.token, LONG)
        .await
        .unwrap();
    let clock = semel::tokio_env().clock;
    clock.sleep(SHORT * 3).await;
    assert_eq!(queue.reap().await.unwrap().requeued, 0);
    bench.complete(&leased, "1").await;
}

#[tokio::test]
async fn ended_and_failed_may_be_told_again() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let queue = bench.jobs.queue();
    let leased = bench.take_one().await;
    let again = JobFailure::again("no luck").with_delay(Duration::ZERO);
    for _ in 0..2 {
        let state = queue.fail(leased.id, leased.token, &again).await.unwrap();
        assert_eq!(state, JobState::Queued);
    }
    let leased = bench.take_one().await;
    assert_eq!(leased.attempt, 2);
    bench.complete(&leased, "1").await;
    bench.complete(&leased, "1").await;
    let fail = queue.fail(leased.id, leased.token, &again).await;
    assert!(matches!(fail, Err(Error::LeaseLost)), "{fail:?}");
}

#[tokio::test]
async fn of_several_kinds_none_waits_for_another_to_run_empty() {
    let mut config = QueueConfig::default();
    config.limits.running.insert("charge".to_owned(), 100);
    let bench = Bench::with(config).await;
    let kinds = ["email", "charge", "ship"];
    for kind in kinds {
        for n in 0..40 {
            bench.jobs.submit(kind, &n).await.unwrap();
        }
    }
    let ask = LeaseOptions::new("w-1", &kinds);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let leased = bench.jobs.queue().lease(&ask).await.unwrap();
        seen.extend(leased.into_iter().map(|job| job.kind));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[tokio::test]
async fn after_its_last_attempt_a_job_is_a_dead_letter() {
    let bench = Bench::new().await;
    let submit = || {
        let submit = bench.jobs.submit("charge", &1).idempotency_key("k-1");
        submit.max_attempts(2)
    };
    let job = submit().await.unwrap().job();
    let queue = bench.jobs.queue();
    let again = JobFailure::again("the provider said no").with_delay(Duration::ZERO);
    for expected in [JobState::Queued, JobState::Dead, JobState::Dead] {
        let leased = match expected {
            JobState::Queued => bench.take_one().await,
            _ => match bench.take(LONG).await {
                Some(leased) => leased,
                None => break,
            },
        };
        assert_eq!(
            queue.fail(leased.id, leased.token, &again).await.unwrap(),
            expected
        );
    }
    let failed = SubmitOutcome::Failed(job, "the provider said no".to_owned());
    assert_eq!(submit().await.unwrap(), failed);
    assert_eq!(queue.counts().await.unwrap().dead, 1);
}

#[tokio::test]
async fn a_worker_that_vanishes_at_the_last_attempt_leaves_a_dead_letter() {
    let bench = Bench::new().await;
    for key in ["k-1", "k-2"] {
        let submit = bench.jobs.submit("charge", &1).max_attempts(1);
        submit.idempotency_key(key).await.unwrap();
    }
    let first = bench.take_one().await;
    bench.take_one().await;
    bench.run(LAPSE).await;
    let queue = bench.jobs.queue();
    let reaped = queue.reap().await.unwrap();
    assert_eq!((reaped.requeued, reaped.buried), (0, 2));
    let late = queue.complete(first.id, first.token, "1".into()).await;
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");
    let again = bench
        .jobs
        .submit("charge", &1)
        .idempotency_key("k-1")
        .await
        .unwrap();
    assert!(
        matches!(again, SubmitOutcome::Failed(job, _) if job.id == first.id),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_dead_letter_that_is_retried_is_the_same_job() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let queue = bench.jobs.queue();
    assert!(matches!(queue.retry(job.id).await, Err(Error::NotDead)));
    let leased = bench.take_one().await;
    let state = queue
        .fail(leased.id, leased.token, &JobFailure::for_good("broken"))
        .await;
    assert_eq!(state.unwrap(), JobState::Dead);
    queue.retry(job.id).await.unwrap();
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    let leased = bench.take_one().await;
    assert_eq!((leased.id, leased.attempt), (job.id, 1));
    bench.complete(&leased, "1").await;
    assert!(
        matches!(bench.submit("k-1", 5).await, SubmitOutcome::Completed(found, _) if found == job)
    );
    assert!(matches!(queue.retry(job.id).await, Err(Error::NotDead)));
}

/// Two who retry must not take each other's claim away: the job could then be ended by nobody.
#[tokio::test]
async fn concurrent_dead_letter_retries_queue_it_once() {
    let bench = Bench::new().await;
    let others = [bench.another().await, bench.another().await];
    for round in 0..20 {
        let key = format!("k-{round}");
        let job = bench.submit(&key, 5).await.job();
        let queue = bench.jobs.queue();
        let leased = bench.take_one().await;
        let failed = JobFailure::for_good("broken");
        queue
            .fail(leased.id, leased.token, &failed)
            .await
            .expect("it is the worker's");
        let retries = (0..9).map(|n| {
            let queue = others.get(n % 3).unwrap_or(&bench).jobs.queue();
            queue.retry(job.id)
        });
        let told = futures_util::future::join_all(retries).await;
        assert_eq!(told.iter().filter(|one| one.is_ok()).count(), 1, "{told:?}");
        assert_eq!(bench.submit(&key, 5).await, SubmitOutcome::InProgress(job));
        let leased = bench.take_one().await;
        assert_eq!(leased.id, job.id);
        bench.complete(&leased, "1").await;
        let again = bench.submit(&key, 5).await;
        assert!(matches!(again, SubmitOutcome::Completed(found, _) if found == job));
    }
}

#[tokio::test]
async fn another_environments_dead_letters_are_left_alone() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let leased = bench.take_one().await;
    let (queue, failed) = (bench.jobs.queue(), JobFailure::for_good("broken"));
    queue.fail(leased.id, leased.token, &failed).await.unwrap();
    let config = QueueConfig::default()
        .with_retention(Duration::from_millis(1))
        .with_max_retention(Duration::from_millis(1));
    let store = bench.semel.postgres().unwrap();
    let opened = |environment| {
        let config = config.clone();
        PostgresQueue::open(bench.semel.engine(), store, environment, config)
    };
    opened("staging").await.unwrap().reap().await.unwrap();
    assert_eq!(queue.counts().await.unwrap().dead, 1);
    opened("").await.unwrap().reap().await.unwrap();
    assert_eq!(queue.counts().await.unwrap().dead, 0);
}

#[tokio::test]
async fn priority_first_then_age_and_not_before_their_time() {
    let bench = Bench::new().await;
    let submit = |priority: u8, n: u32| bench.jobs.submit("charge", &n).priority(priority);
    submit(5, 1).await.unwrap();
    submit(5, 2).await.unwrap();
    submit(9, 3).await.unwrap();
    submit(0, 4).await.unwrap();
    submit(9, 5).delay(Duration::from_secs(3600)).await.unwrap();
    let mut ask = LeaseOptions::new("w-1", &["other", "charge"]);
    ask.most = 3;
    let leased = bench.jobs.queue().lease(&ask).await.unwrap();
    let order: Vec<_> = leased.iter().map(|job| job.params.to_vec()).collect();
    assert_eq!(order, [b"3", b"1", b"2"]);
    let rest = bench.jobs.queue().lease(&ask).await.unwrap();
    assert_eq!(rest.len(), 1, "the last is for later");
    assert_eq!(&rest[0].params[..], b"4");
}

#[tokio::test]
async fn many_workers_never_have_the_same_job() {
    let bench = Bench::new().await;
    let jobs = (0..500).map(|n| semel_jobs::NewJob::new("charge", n.to_string()));
    let accepted = bench.jobs.submit_all(jobs.collect()).await;
    assert!(accepted.iter().all(Result::is_ok));
    let workers = (0..8).map(|_| async {
        let mut taken = Vec::new();
        let mut ask = LeaseOptions::new("w", &["charge"]);
        ask.most = 7;
        loop {
            let leased = bench.jobs.queue().lease(&ask).await.unwrap();
            if leased.is_empty() {
                return taken;
            }
            taken.extend(leased.into_iter().map(|job| job.id));
        }
    });
    let mut all: Vec<_> = futures_util::future::join_all(workers).await.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 500);
}
