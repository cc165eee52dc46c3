//! Back-pressure: so many may wait, so many may run.

use std::collections::HashMap;

use semel_jobs::{Error, LeaseOptions, QueueConfig, QueueLimits};

use crate::support::Bench;

async fn bench(limits: QueueLimits) -> Bench {
    Bench::with(QueueConfig::default().with_limits(limits)).await
}

#[tokio::test]
async fn b1_a_full_queue_refuses_what_is_new_and_knows_what_is_not() {
    let bench = bench(QueueLimits::default().with_queued_per_kind(3)).await;
    for n in 0..3 {
        bench.submit(&format!("k-{n}"), 5).await;
    }
    let full = bench.try_submit("k-3", 5).await;
    assert!(
        matches!(full, Err(Error::Full { full: "kind", .. })),
        "{full:?}"
    );
    assert!(full.is_err_and(|error| error.is_retryable()));
    assert!(
        bench.submit("k-1", 5).await.is_duplicate(),
        "it adds nothing"
    );
    assert!(
        bench.jobs.submit("other", &1).await.is_ok(),
        "another kind has room"
    );
    assert!(bench.jobs.submit("charge", &1).tenant("acme").await.is_ok());
    // Once there is room, and that was noticed, it is taken.
    bench.take_one().await;
    let clock = semel::tokio_env().clock;
    while bench.try_submit("k-3", 5).await.is_err() {
        clock.sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn b1_a_client_with_too_many_unfinished_jobs_is_refused() {
    let bench = bench(QueueLimits::default().with_unfinished_per_client(2)).await;
    let submit = |client: &'static str| bench.jobs.submit("charge", &1).client(client);
    submit("a").await.unwrap();
    submit("a").await.unwrap();
    bench.take_one().await;
    let full = submit("a").await;
    assert!(
        matches!(full, Err(Error::Full { full: "client", .. })),
        "{full:?}"
    );
    assert!(submit("b").await.is_ok());
    assert!(
        submit("").await.is_ok(),
        "nobody in particular has no bound"
    );
}

#[tokio::test]
async fn b1_no_more_run_than_may_the_others_wait() {
    let bench =
        bench(QueueLimits::default().with_running(HashMap::from([("charge".to_owned(), 5)]))).await;
    let all = (0..60).map(|n| semel_jobs::NewJob::new("charge", n.to_string()));
    bench.jobs.submit_all(all.collect()).await;
    let mut ask = LeaseOptions::new("w", &["charge", "other"]);
    ask.most = 3;
    let workers = (0..8).map(|_| bench.jobs.queue().lease(&ask));
    let leased = futures_util::future::join_all(workers).await;
    let leased: Vec<_> = leased.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(leased.len(), 5);
    bench.complete(&leased[0], "1").await;
    assert_eq!(bench.jobs.queue().lease(&ask).await.unwrap().len(), 1);
}
