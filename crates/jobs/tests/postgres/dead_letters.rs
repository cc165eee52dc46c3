//! A dead letter's failure is an answer that may be taken back, so no process keeps a copy of it.

use semel_jobs::{JobFailure, SubmitOutcome};

use crate::support::Bench;

#[tokio::test]
async fn a_retried_dead_letter_is_no_failure_to_any_process() {
    let bench = Bench::new().await;
    let other = bench.another().await;
    let job = bench.submit("k-1", 5).await.job();
    let leased = bench.take_one().await;
    let (queue, failed) = (bench.jobs.queue(), JobFailure::for_good("broken"));
    let buried = queue.fail(leased.id, leased.token, &failed).await;
    buried.expect("it is the worker's");
    // Twice: a process that keeps answers would give the second from its own copy.
    for _ in 0..2 {
        let told = other.submit("k-1", 5).await;
        assert_eq!(told, SubmitOutcome::Failed(job, "broken".to_owned()));
    }
    queue.retry(job.id).await.expect("a dead letter");
    assert_eq!(other.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    let leased = bench.take_one().await;
    bench.complete(&leased, "1").await;
    let told = other.submit("k-1", 5).await;
    assert!(
        matches!(&told, SubmitOutcome::Completed(found, _) if *found == job),
        "{told:?}"
    );
}
