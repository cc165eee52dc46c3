//! Document O: the layout, and what a submission means.

use std::time::Duration;

use object_store::path::Path;
use semel_jobs::object::ObjectQueue;
use semel_jobs::{Error, JobAnswer, SubmitOutcome};

use crate::support::Bench;

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn o_layout_the_record_has_the_fields_and_the_place_of_the_document() {
    let bench = Bench::new().await;
    let submitted = bench.submit("charge-ORD-123", 5).await;
    assert!(matches!(submitted, SubmitOutcome::Accepted(_)));
    let record = bench.record("charge-ORD-123").await.unwrap();
    let mut members: Vec<_> = record.as_object().unwrap().keys().cloned().collect();
    members.sort();
    let expected = [
        "created_at",
        "expires_at",
        "input_hash",
        "key",
        "key_hash",
        "status",
        "task_id",
        "task_key",
        "task_type",
    ];
    assert_eq!(members, expected);
    assert_eq!(record["key"], "charge-ORD-123");
    assert_eq!(record["task_type"], "charge_customer");
    assert_eq!(record["status"], "ready");
    // printf 'charge_customer:charge-ORD-123' | sha256sum
    let hash = "c16719dc40dc60cc79d7a0dbe8e090c1b2a0efd6fdc45629311f0c2c5ce5782c";
    assert_eq!(record["key_hash"], format!("sha256:{hash}"));
    let path = bench
        .queue
        .record_path("", "charge_customer", "charge-ORD-123");
    let end = format!("/idempotency/charge_customer/{hash}.json");
    assert!(path.as_ref().ends_with(&end), "{path}");
    // It is in the folder of `semel lifecycle --jobs`.
    let root = bench.store.folder();
    for tenant in ["", "acme", "a/b"] {
        let keys = ObjectQueue::key_folder("", tenant);
        let keys: Path = root.parts().chain(keys.parts()).collect();
        let path = bench.queue.record_path(tenant, "charge_customer", "k");
        assert!(path.prefix_matches(&keys), "{path} is not in {keys}");
    }
    let id = record["task_id"].as_str().unwrap();
    let task = format!("tasks/{}/{id}.json", &id[id.len() - 1..]);
    assert_eq!(bench.tasks().await, std::slice::from_ref(&task));
    assert!(record["task_key"].as_str().unwrap().ends_with(&task));
    let days = |name: &str| {
        let text = record[name].as_str().unwrap();
        let at = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
        at.unwrap().unix_timestamp() / 86_400
    };
    assert_eq!(days("expires_at") - days("created_at"), 30);
    assert!(
        record["input_hash"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
}

#[tokio::test]
async fn o_semantics_the_same_key_returns_the_same_task() {
    let bench = Bench::new().await;
    let first = bench.submit("k-1", 5).await;
    for _ in 0..5 {
        assert_eq!(
            bench.submit("k-1", 5).await,
            SubmitOutcome::InProgress(first.job())
        );
    }
    assert_eq!(bench.tasks().await.len(), 1);
}

#[tokio::test]
async fn o_guarantee_of_many_at_once_one_task() {
    let bench = Bench::new().await;
    let others = [bench.another().await, bench.another().await];
    for round in 0..5 {
        let key = format!("race-{round}");
        let each = (0..12).map(|n| others[n % 2].submit(&key, 5));
        let answers = futures_util::future::join_all(each).await;
        let new = answers
            .iter()
            .filter(|answer| !answer.is_duplicate())
            .count();
        assert_eq!(new, 1, "round {round}: {answers:?}");
        assert!(
            answers
                .iter()
                .all(|answer| answer.job() == answers[0].job())
        );
    }
    assert_eq!(bench.tasks().await.len(), 5);
}

#[tokio::test]
async fn o_validation_another_input_is_an_idempotency_conflict() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let other = bench.try_submit("k-1", 6).await;
    assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
    // And while it is being created.
    bench
        .change_record("k-1", |record| record["status"] = "creating".into())
        .await;
    let other = bench.try_submit("k-1", 6).await;
    assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
    assert_eq!(bench.tasks().await.len(), 1);
}

#[tokio::test]
async fn o_scope_is_the_task_type_the_queue_or_custom() {
    let bench = Bench::new().await;
    let submit = |kind: &'static str| bench.jobs.submit(kind, &1).idempotency_key("k");
    assert!(!submit("a").await.unwrap().is_duplicate());
    assert!(!submit("b").await.unwrap().is_duplicate());
    assert!(!submit("a").scope("queue").await.unwrap().is_duplicate());
    assert!(matches!(
        submit("b").scope("queue").await,
        Err(Error::Conflict)
    ));
    assert!(!submit("a").scope("night run").await.unwrap().is_duplicate());
    assert!(submit("a").scope("night run").await.unwrap().is_duplicate());
    assert!(!submit("a").tenant("acme").await.unwrap().is_duplicate());
    assert!(submit("a").tenant("acme").await.unwrap().is_duplicate());
}

#[tokio::test]
async fn o_ttl_an_expired_record_is_replaced() {
    let bench = Bench::new().await;
    let submit = |key: &'static str| {
        let submit = bench.jobs.submit("charge_customer", &1);
        submit
            .idempotency_key(key)
            .idempotency_ttl(Duration::from_secs(30 * 86_400))
    };
    let first = submit("k-1").await.unwrap().job();
    bench.work_off(LONG).await;
    bench.expire("k-1").await;
    let each = (0..6).map(|_| async { submit("k-1").await.unwrap() });
    let answers = futures_util::future::join_all(each).await;
    assert_eq!(
        answers
            .iter()
            .filter(|answer| !answer.is_duplicate())
            .count(),
        1
    );
    assert!(
        answers
            .iter()
            .all(|answer| answer.job() == answers[0].job())
    );
    assert_ne!(answers[0].job(), first);
    assert_eq!(bench.tasks().await.len(), 2, "of two lives of the key");
}

/// A backlog may be longer than the time that a key is kept: the job of the key is still to be
/// done.
#[tokio::test]
async fn o_ttl_a_key_is_not_freed_while_its_task_is_unfinished() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    bench.expire("k-1").await;
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    let other = bench.try_submit("k-1", 6).await;
    assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
    let leased = bench.take(LONG).await.expect("it waits");
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    assert_eq!(bench.tasks().await.len(), 1);
    let queue = bench.jobs.queue();
    let done = queue.complete(leased.id, leased.token, "1".into()).await;
    done.expect("it is the worker's");
    assert!(!bench.submit("k-1", 6).await.is_duplicate(), "as new");
}

#[tokio::test]
async fn o_completion_is_told_to_later_submitters() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let leased = bench.take(Duration::from_secs(30)).await.unwrap();
    assert_eq!(leased.id, job.id);
    let queue = bench.jobs.queue();
    queue
        .complete(leased.id, leased.token, r#"{"charge": 1.50}"#.into())
        .await
        .unwrap();
    let answer = JobAnswer::Kept(r#"{"charge": 1.50}"#.into());
    assert_eq!(
        bench.submit("k-1", 5).await,
        SubmitOutcome::Completed(job, answer)
    );
}

#[tokio::test]
async fn a_result_that_is_null_is_told_as_null() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let leased = bench.take(Duration::from_secs(30)).await.unwrap();
    let queue = bench.jobs.queue();
    assert_eq!(queue.look(job.id).await.unwrap().unwrap().answer, None);
    let done = queue.complete(leased.id, leased.token, "null".into());
    done.await.unwrap();
    let null = JobAnswer::Kept("null".into());
    let found = queue.look(job.id).await.unwrap().unwrap();
    assert_eq!(found.answer.as_ref(), Some(&null));
    assert_eq!(
        bench.submit("k-1", 5).await,
        SubmitOutcome::Completed(job, null)
    );
}
