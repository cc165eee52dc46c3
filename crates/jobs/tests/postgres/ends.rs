//! What is kept of an end.

use std::time::Duration;

use semel_jobs::{JobAnswer, JobState, QueueConfig, SubmitOutcome};

use crate::support::Bench;

#[tokio::test]
async fn an_answer_past_the_cap_is_remembered_without_its_body() {
    let bench = Bench::with(QueueConfig::default().with_max_answer_bytes(10)).await;
    let job = bench.submit("k-1", 5).await.job();
    bench
        .complete(&bench.take_one().await, "\"more than ten\"")
        .await;
    let omitted = JobAnswer::Omitted { bytes: 15 };
    assert_eq!(
        bench.submit("k-1", 5).await,
        SubmitOutcome::Completed(job, omitted.clone())
    );
    let found = bench.jobs.queue().look(job.id).await.unwrap().unwrap();
    assert_eq!(found.answer, Some(omitted));
}

#[tokio::test]
async fn the_record_and_the_job_end_together_or_not_at_all() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let leased = bench.take_one().await;
    // The job's row can't be written: then the record isn't either.
    bench
        .run("ALTER TABLE semel.jobs ADD CONSTRAINT never CHECK (state <> 3)")
        .await;
    let queue = bench.jobs.queue();
    let failed = queue.complete(leased.id, leased.token, "1".into()).await;
    assert!(failed.is_err());
    let completed = "SELECT count(*) FROM semel.records WHERE scope = 'job:charge' AND state = 2";
    assert_eq!(bench.count(completed).await, 0);
    bench
        .run("ALTER TABLE semel.jobs DROP CONSTRAINT never")
        .await;
    bench.complete(&leased, "1").await;
    assert_eq!(bench.count(completed).await, 1);
}

#[tokio::test]
async fn the_record_and_the_job_begin_together_or_not_at_all() {
    let bench = Bench::new().await;
    bench
        .run("ALTER TABLE semel.jobs ADD CONSTRAINT never CHECK (kind <> 'charge')")
        .await;
    assert!(bench.try_submit("k-1", 5).await.is_err());
    assert_eq!(
        bench
            .count("SELECT count(*) FROM semel.records WHERE scope = 'job:charge'")
            .await,
        0
    );
    bench
        .run("ALTER TABLE semel.jobs DROP CONSTRAINT never")
        .await;
    assert!(!bench.submit("k-1", 5).await.is_duplicate());
}

#[tokio::test]
async fn whoever_waits_is_told_of_the_end() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let leased = bench.take_one().await;
    let waiting = bench.jobs.wait(job.id, Duration::from_secs(20));
    let working = async {
        bench.complete(&leased, "1").await;
        bench.jobs.notify_ended(job.id);
    };
    let (found, ()) = futures_util::future::join(waiting, working).await;
    assert_eq!(found.unwrap().unwrap().state, JobState::Done);
    let nobody = semel_jobs::JobId::from_u128(1);
    assert!(
        bench
            .jobs
            .wait(nobody, Duration::from_secs(20))
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn what_ended_long_ago_is_swept_and_nothing_else() {
    let bench = Bench::new().await;
    for key in ["done", "dead", "waits", "new"] {
        bench.submit(key, 5).await;
    }
    let queue = bench.jobs.queue();
    bench.complete(&bench.take_one().await, "1").await;
    let dead = bench.take_one().await;
    let failed = semel_jobs::JobFailure::for_good("no");
    queue.fail(dead.id, dead.token, &failed).await.unwrap();
    bench
        .run("UPDATE semel.jobs SET due_us = 1 WHERE state IN (1, 3)")
        .await;
    bench.complete(&bench.take_one().await, "1").await;
    assert_eq!(queue.reap().await.unwrap().swept, 1);
    assert_eq!(bench.count("SELECT count(*) FROM semel.jobs").await, 3);
    bench
        .run("UPDATE semel.jobs SET due_us = 1 WHERE state = 4")
        .await;
    assert_eq!(
        queue.reap().await.unwrap().swept,
        1,
        "the dead letter, after the longest time"
    );
}
