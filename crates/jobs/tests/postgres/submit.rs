//! Submitting: once for a key and its parameters, whoever submits it how often (J2, J7).

use semel_jobs::{Error, JobAnswer, JobState, NewJob, SubmitOutcome};

use crate::support::Bench;

const ALL: &str = "SELECT count(*) FROM semel.jobs";

#[tokio::test]
async fn j7_1_same_key_same_payload_ten_submits_are_one_job() {
    let bench = Bench::new().await;
    let first = bench.submit("k-1", 5).await;
    assert!(matches!(first, SubmitOutcome::Accepted(_)));
    for _ in 0..9 {
        let again = bench.submit("k-1", 5).await;
        assert_eq!(again, SubmitOutcome::InProgress(first.job()));
        assert!(again.is_duplicate());
    }
    assert_eq!(bench.count(ALL).await, 1);
}

#[tokio::test]
async fn j7_1_the_same_from_many_processes_at_once() {
    let bench = Bench::new().await;
    let others = [
        bench.another().await,
        bench.another().await,
        bench.another().await,
    ];
    for round in 0..20 {
        let key = format!("race-{round}");
        let each = (0..24).map(|n| others[n % 3].submit(&key, 5));
        let answers = futures_util::future::join_all(each).await;
        let new = answers
            .iter()
            .filter(|answer| !answer.is_duplicate())
            .count();
        assert_eq!(new, 1, "round {round}");
        assert!(
            answers
                .iter()
                .all(|answer| answer.job() == answers[0].job())
        );
    }
    assert_eq!(bench.count(ALL).await, 20);
}

#[tokio::test]
async fn j7_2_same_key_other_payload_is_a_conflict_and_enqueues_nothing() {
    let bench = Bench::new().await;
    bench.submit("k-1", 5).await;
    let other = bench.try_submit("k-1", 6).await;
    assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
    bench.complete(&bench.take_one().await, "{}").await;
    let after = bench.try_submit("k-1", 6).await;
    assert!(matches!(after, Err(Error::Conflict)), "{after:?}");
    assert_eq!(bench.count(ALL).await, 1);
}

#[tokio::test]
async fn j7_3_completion_is_cached_for_later_submitters() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    let leased = bench.take_one().await;
    assert_eq!((leased.id, leased.request_id), (job.id, job.request_id));
    bench.complete(&leased, r#"{"charge": 1.50}"#).await;
    let expected = SubmitOutcome::Completed(job, JobAnswer::Kept(r#"{"charge": 1.50}"#.into()));
    assert_eq!(bench.submit("k-1", 5).await, expected);
    // Another process has no copy of its own.
    assert_eq!(bench.another().await.submit("k-1", 5).await, expected);
    assert_eq!(bench.count(ALL).await, 1);
}

#[tokio::test]
async fn j2_b_without_a_key_each_submission_is_a_job_of_its_own() {
    let bench = Bench::new().await;
    let first = bench.jobs.submit("charge", &1).await.unwrap();
    let second = bench.jobs.submit("charge", &1).await.unwrap();
    assert!(!first.is_duplicate() && !second.is_duplicate());
    assert_ne!(first.job().id, second.job().id);
    assert_ne!(first.job().request_id, second.job().request_id);
    bench.complete(&bench.take_one().await, "1").await;
    let found = bench
        .jobs
        .queue()
        .look(first.job().id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.state, JobState::Done);
    assert_eq!(
        bench
            .count("SELECT count(*) FROM semel.records WHERE scope LIKE 'job:%'")
            .await,
        0
    );
}

#[tokio::test]
async fn j2_a_member_order_and_white_space_do_not_count() {
    let bench = Bench::new().await;
    let submit = |params: &'static str| {
        let mut job = NewJob::new("charge", params);
        job.key = Some(semel_core::Key::parse("k-1").unwrap());
        async { bench.jobs.queue().enqueue(vec![job]).await.remove(0) }
    };
    let first = submit(r#"{"a": 1, "b": {"c": [1, 2]}}"#).await.unwrap();
    let same = submit(r#"{"b":{"c":[1,2]},"a":1}"#).await.unwrap();
    assert_eq!(same.job(), first.job());
    let nested = submit(r#"{"b":{"c":[1,3]},"a":1}"#).await;
    assert!(matches!(nested, Err(Error::Conflict)));
    let broken = submit(r#"{"b":"#).await;
    assert!(matches!(broken, Err(Error::Params(_))), "{broken:?}");
}

#[tokio::test]
async fn tenants_and_scopes_never_meet() {
    let bench = Bench::new().await;
    let submit = |tenant: &'static str, kind: &'static str, scope: Option<&'static str>| {
        let submit = bench
            .jobs
            .submit(kind, &1)
            .idempotency_key("k")
            .tenant(tenant);
        async move {
            match scope {
                Some(scope) => submit.scope(scope).await,
                None => submit.await,
            }
        }
    };
    assert!(!submit("", "a", None).await.unwrap().is_duplicate());
    assert!(!submit("", "b", None).await.unwrap().is_duplicate());
    assert!(!submit("acme", "a", None).await.unwrap().is_duplicate());
    assert!(!submit("", "a", Some("queue")).await.unwrap().is_duplicate());
    // In the scope of all kinds, the kind is part of what is asked for.
    let other = submit("", "b", Some("queue")).await;
    assert!(matches!(other, Err(Error::Conflict)));
    assert!(submit("", "a", Some("queue")).await.unwrap().is_duplicate());
}

#[tokio::test]
async fn many_at_once_go_the_same_way_as_one() {
    let bench = Bench::new().await;
    let known = bench.submit("k-3", 3).await.job();
    let job = |n: usize, amount: usize| {
        let key = format!("k-{n}");
        let params = serde_json::json!({"order": key, "amount": amount}).to_string();
        let mut job = NewJob::new("charge", params);
        job.key = Some(semel_core::Key::parse(&key).unwrap());
        job
    };
    let mut many: Vec<NewJob> = (0..1000).map(|n| job(n, n)).collect();
    many.push(job(7, 7)); // A duplicate in the same batch,
    many.push(job(8, 9)); // and one with other parameters.
    many.push(NewJob::new("charge", "1")); // And one without a key.
    let answers = bench.jobs.submit_all(many).await;
    assert_eq!(answers.len(), 1003);
    assert_eq!(
        *answers[3].as_ref().unwrap(),
        SubmitOutcome::InProgress(known)
    );
    let new = answers
        .iter()
        .flatten()
        .filter(|answer| !answer.is_duplicate());
    assert_eq!(new.count(), 1000, "999 keys, and one without");
    let (one, two) = (
        answers[7].as_ref().unwrap(),
        answers[1000].as_ref().unwrap(),
    );
    assert_eq!(one.job(), two.job());
    assert!(one.is_duplicate() != two.is_duplicate());
    let conflicts = answers
        .iter()
        .filter(|answer| matches!(answer, Err(Error::Conflict)));
    assert_eq!(conflicts.count(), 1);
    assert_eq!(bench.count(ALL).await, 1001);
}

/// The record of a key may end before its job does: the job is still the one that the key stands
/// for.
#[tokio::test]
async fn a_record_that_expired_before_the_job_ended_is_found_again() {
    let bench = Bench::new().await;
    let job = bench.submit("k-1", 5).await.job();
    bench.run("UPDATE semel.records SET written_us = 1").await;
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    bench
        .run("DELETE FROM semel.records WHERE scope LIKE 'job:%'")
        .await;
    let other = bench.try_submit("k-1", 6).await;
    assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    // Of many at once with other parameters, none is told that it is in progress: it isn't.
    for expired in [false, true] {
        if expired {
            bench.run("UPDATE semel.records SET written_us = 1").await;
        } else {
            bench
                .run("DELETE FROM semel.records WHERE scope LIKE 'job:%'")
                .await;
        }
        let many = (0..8).map(|_| bench.try_submit("k-1", 6));
        for told in futures_util::future::join_all(many).await {
            assert!(matches!(told, Err(Error::Conflict)), "{told:?}");
        }
    }
    assert_eq!(bench.submit("k-1", 5).await, SubmitOutcome::InProgress(job));
    // And once more before it is done.
    let leased = bench.take_one().await;
    bench.run("UPDATE semel.records SET written_us = 1").await;
    bench.complete(&leased, "7").await;
    let done = SubmitOutcome::Completed(job, JobAnswer::Kept("7".into()));
    assert_eq!(bench.submit("k-1", 5).await, done);
    assert_eq!(bench.count(ALL).await, 1);
}

#[tokio::test]
async fn after_its_retention_a_key_is_as_new() {
    let bench = Bench::new().await;
    let first = bench.submit("k-1", 5).await.job();
    bench.complete(&bench.take_one().await, "1").await;
    bench.run("UPDATE semel.records SET written_us = 1").await;
    let again = bench.another().await.submit("k-1", 5).await;
    assert!(!again.is_duplicate() && again.job() != first);
}

#[tokio::test]
async fn what_an_operator_sees_of_it() {
    let bench = Bench::new().await;
    bench.submit("secret-key-of-mine", 5).await;
    let query = semel_core::store::Query::default();
    let page = bench.semel.store().list(&query).await.unwrap();
    let record = page
        .records
        .iter()
        .find(|(_, record)| record.namespace.scope() == "job:charge");
    assert_eq!(record.unwrap().1.state, semel_core::State::Running);
    let jobs = bench
        .jobs
        .queue()
        .list(&semel_jobs::JobQuery::default())
        .await
        .unwrap();
    assert_eq!(jobs.jobs.len(), 1);
    assert!(!format!("{:?}", jobs.jobs[0]).contains("secret-key-of-mine"));
}
