//! Document O's failure modes: a submitter that vanishes between its writes is helped by the next.

use semel_jobs::SubmitOutcome;
use semel_testkit::http_proxy::HttpFault;

use crate::support::Bench;

#[tokio::test]
async fn o_failure_a_record_without_its_task_is_repaired_by_the_next_submit() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    // As it is left by one that vanished after its first write.
    let path = bench.queue.task_path("", job.id);
    let (_, version) = bench.store.get(&path).await.unwrap().unwrap();
    assert!(bench.store.remove(&path, &version).await.unwrap());
    bench
        .change_record("k-1", |record| record["status"] = "creating".into())
        .await;
    let each = (0..8).map(|_| bench.submit("k-1", 5));
    for again in futures_util::future::join_all(each).await {
        assert_eq!(again, SubmitOutcome::InProgress(job));
    }
    assert_eq!(bench.tasks().await.len(), 1);
    assert_eq!(bench.record("k-1").await.unwrap()["status"], "ready");
}

#[tokio::test]
async fn o_failure_a_task_without_its_mark_is_not_created_again() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    bench
        .change_record("k-1", |record| record["status"] = "creating".into())
        .await;
    let leased = bench
        .take(std::time::Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    bench
        .jobs
        .queue()
        .complete(leased.id, leased.token, "1".into())
        .await
        .unwrap();
    bench
        .change_record("k-1", |record| record["status"] = "creating".into())
        .await;
    assert!(
        matches!(bench.submit("k-1", 5).await, SubmitOutcome::Completed(found, _) if found == job)
    );
    assert_eq!(bench.tasks().await.len(), 1);
}

/// A server that can't tell (409) has not said that the task is there.
#[tokio::test]
async fn o_failure_task_that_was_not_written_is_not_taken_as_present() {
    let direct = Bench::new().await;
    let (proxy, bench) = direct.behind_a_proxy().await;
    proxy.next("PUT", HttpFault::Refused(409));
    let submitted = bench.jobs.submit("charge_customer", &1).await.unwrap();
    assert_eq!(proxy.armed(), 0);
    assert!(!submitted.is_duplicate());
    assert_eq!(direct.tasks().await.len(), 1);
}

/// Writes are refused, cut off before their reply, or reported as failed although they were done;
/// keys are submitted until each is acknowledged: there is one task for each.
#[tokio::test]
async fn o_failure_cut_connections_make_no_second_task() {
    let direct = Bench::new().await;
    let (proxy, bench) = direct.behind_a_proxy().await;
    let wrongs = [
        HttpFault::DoneAndCut,
        HttpFault::Refused(503),
        HttpFault::DoneBut(500),
    ];
    for n in 0..40 {
        // None to three of the writes in a row, in each of the ways.
        for _ in 0..n % 4 {
            proxy.next("PUT", wrongs[n / 4 % 3]);
        }
        let key = format!("cut-{n}");
        while bench.try_submit(&key, 5).await.is_err() {}
    }
    assert_eq!(proxy.armed(), 0);
    assert_eq!(direct.tasks().await.len(), 40);
    for n in 0..40 {
        assert!(direct.submit(&format!("cut-{n}"), 5).await.is_duplicate());
    }
    assert_eq!(direct.tasks().await.len(), 40);
}
