//! Whose tasks they are: those of two tenants, and of two environments, never meet.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::time::Duration;

use semel_jobs::{Error, JobId, JobLease, JobQuery, JobState, LeaseOptions, Queue as _};

use crate::support::Bench;

const LONG: Duration = Duration::from_secs(30);

/// To go through all tenants has an end.
const LIMIT: Duration = Duration::from_secs(60);

/// Most of them are written in another way in a path; and a server may list the last before the one
/// before it.
const TENANTS: [&str; 7] = ["a/b", "a~b", "a#b", "a%b", "..", "acme", "acme-eu"];

async fn take_all(bench: &Bench, tenant: &str, span: Duration) -> Vec<JobLease> {
    let mut ask = LeaseOptions::new("w-1", &["charge_customer"]);
    tenant.clone_into(&mut ask.tenant);
    ask.most = 10;
    ask.span = span;
    bench.queue.lease(&ask).await.expect("an answer")
}

async fn listed(bench: &Bench, tenant: Option<&str>) -> Vec<(JobId, String)> {
    let query = JobQuery::default().with_tenant(tenant.map(str::to_owned));
    let page = bench.queue.list(&query).await.expect("an answer");
    page.jobs
        .into_iter()
        .map(|job| (job.id, job.tenant))
        .collect()
}

#[tokio::test]
async fn a_tenant_may_have_any_name() {
    let bench = Bench::new().await;
    let all = tokio::time::timeout(LIMIT, Box::pin(each_tenant_works(&bench)));
    all.await.expect("an end");
}

async fn each_tenant_works(bench: &Bench) {
    let jobs = submit_for_each(bench).await;
    assert!(take_all(bench, "", LONG).await.is_empty());
    assert_eq!(bench.queue.counts().await.expect("an answer").queued, 7);
    assert_eq!(listed(bench, None).await.len(), 7);
    their_workers_vanish(bench, &jobs).await;
    for (tenant, id) in jobs {
        let leased = take_all(bench, tenant, LONG).await;
        assert!(leased.len() == 1 && leased[0].id == id, "{tenant}");
        let done = bench.queue.complete(id, leased[0].token, "1".into());
        done.await.expect("an answer");
        let found = bench
            .queue
            .look(id)
            .await
            .expect("an answer")
            .expect("a job");
        let found = (found.tenant.as_str(), found.state);
        assert_eq!(found, (tenant, JobState::Done));
    }
    let counts = bench.queue.counts().await.expect("an answer");
    assert_eq!((counts.queued, counts.running), (0, 0));
}

async fn submit_for_each(bench: &Bench) -> Vec<(&'static str, JobId)> {
    let mut jobs = Vec::new();
    for tenant in TENANTS {
        let submit = bench.jobs.submit("charge_customer", tenant);
        let submitted = submit
            .tenant(tenant)
            .idempotency_key("k-1")
            .await
            .expect("an answer");
        assert!(!submitted.is_duplicate(), "{tenant}");
        jobs.push((tenant, submitted.job().id));
    }
    jobs
}

async fn their_workers_vanish(bench: &Bench, jobs: &[(&str, JobId)]) {
    for (tenant, id) in jobs.iter().copied() {
        assert_eq!(listed(bench, Some(tenant)).await, [(id, tenant.to_owned())]);
        let leased = take_all(bench, tenant, Duration::from_millis(10)).await;
        assert!(leased.len() == 1 && leased[0].id == id, "{tenant}");
    }
    let (clock, mut requeued) = (semel::tokio_env().clock, 0);
    while requeued < 7 {
        clock.sleep(Duration::from_millis(300)).await;
        requeued += bench.queue.reap().await.expect("an answer").requeued;
    }
}

#[tokio::test]
async fn a_folder_that_no_tenant_would_have_is_passed_by() {
    let bench = Bench::new().await;
    let foreign = format!("{}/tenants/%61cme/tasks/0/x.json", bench.store.folder());
    let foreign = object_store::path::Path::parse(foreign).expect("an answer");
    let written = bench.store.put(&foreign, "{}".into(), None).await;
    assert!(written.expect("an answer").is_some());
    let submit = bench.jobs.submit("charge_customer", &1).tenant("acme");
    let id = submit.await.expect("an answer").job().id;
    let all = tokio::time::timeout(LIMIT, Box::pin(listed(&bench, None)));
    let all = all.await.expect("an end");
    assert_eq!(all, [(id, "acme".to_owned())]);
}

#[tokio::test]
async fn environments_of_one_folder_never_meet() {
    let nameless = Bench::new().await;
    let staging = nameless.in_environment("staging").await;
    let production = nameless.in_environment("production/eu").await;
    let all = [&nameless, &staging, &production];
    let mut jobs = Vec::new();
    for bench in all {
        let submitted = bench.submit("k-1", 5).await;
        assert!(!submitted.is_duplicate());
        let submit = bench.jobs.submit("charge_customer", &5).tenant("acme");
        jobs.push((
            bench,
            submitted.job().id,
            submit.await.expect("an answer").job().id,
        ));
    }
    for (bench, id, of_acme) in jobs.iter().copied() {
        assert!(bench.submit("k-1", 5).await.is_duplicate());
        assert_eq!(bench.queue.counts().await.expect("an answer").queued, 2);
        let newest_first = [(of_acme, "acme".to_owned()), (id, String::new())];
        assert_eq!(listed(bench, None).await, newest_first);
    }
    for (bench, id, of_acme) in jobs.iter().copied() {
        works_apart(bench, all, id, of_acme).await;
    }
    let path = staging.queue.task_path("", jobs[1].1).to_string();
    let begin = format!("{}/environments/staging/tasks/", staging.store.folder());
    assert!(path.starts_with(&begin), "{path}");
}

async fn works_apart(bench: &Bench, all: [&Bench; 3], id: JobId, of_acme: JobId) {
    let leased = take_all(bench, "", LONG).await;
    assert!(leased.len() == 1 && leased[0].id == id);
    let token = leased[0].token;
    let leased = take_all(bench, "acme", LONG).await;
    assert!(leased.len() == 1 && leased[0].id == of_acme);
    for other in all {
        if std::ptr::eq(other, bench) {
            continue;
        }
        assert!(other.queue.look(id).await.expect("an answer").is_none());
        let done = other.queue.complete(id, token, "1".into()).await;
        assert!(matches!(done, Err(Error::NotFound)), "{done:?}");
    }
    bench
        .queue
        .complete(id, token, "1".into())
        .await
        .expect("an answer");
    let counts = bench.queue.counts().await.expect("an answer");
    assert_eq!((counts.queued, counts.running), (0, 1));
}
