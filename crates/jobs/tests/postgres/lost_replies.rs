//! Taking jobs may be sent again: what the first sending took is the worker's, and uses up one
//! attempt.

use std::net::SocketAddr;

use semel_jobs::{JobLease, JobState, LeaseOptions, QueueConfig};
use semel_testkit::proxy::{Cut, Proxy};

use crate::support::Bench;

/// A worker on a way that can be cut, and the same database straight.
async fn behind_a_proxy(config: QueueConfig) -> (Proxy, Bench, Bench) {
    let direct = Bench::with(config.clone()).await;
    let (_, at) = direct.url.split_once('@').expect("a user in the URL");
    let (address, _) = at.split_once('/').expect("a database in the URL");
    let server: SocketAddr = address.parse().expect("an address");
    let proxy = Proxy::to(server, semel::tokio_env().clock).await;
    let proxy = proxy.expect("a port");
    let through = proxy.address().to_string();
    let mut url = direct.url.replacen(address, &through, 1);
    url.push_str(if url.ends_with('?') { "" } else { "&" });
    // One connection, so that the next reply is the one that is meant.
    url.push_str("max_connections=1");
    let worker = Bench::at(url, config).await;
    // Prepares the statement: from now on, taking is one request and one reply.
    assert!(
        worker
            .take(std::time::Duration::from_secs(30))
            .await
            .is_none()
    );
    (proxy, worker, direct)
}

async fn submit_for_one_attempt(bench: &Bench, key: &str) -> semel_jobs::JobId {
    let submit = bench.jobs.submit("charge", &1).idempotency_key(key);
    submit.max_attempts(1).await.expect("an answer").job().id
}

async fn take(bench: &Bench) -> Vec<JobLease> {
    let ask = LeaseOptions::new("w-1", &["charge"]);
    bench.jobs.queue().lease(&ask).await.expect("an answer")
}

/// Takes while `lots` replies come and the next one doesn't: gets the older of two jobs, at its
/// first attempt.
async fn takes_one_through(config: QueueConfig, lots: usize) {
    let (proxy, worker, direct) = behind_a_proxy(config).await;
    let first = submit_for_one_attempt(&direct, "k-1").await;
    let second = submit_for_one_attempt(&direct, "k-2").await;
    proxy.cut_after(lots, Cut::BeforeReply);
    let taken = take(&worker).await;
    assert_eq!(proxy.cuts(), 1);
    let [job] = taken.as_slice() else {
        panic!("one job, got {taken:?}");
    };
    assert_eq!((job.id, job.attempt), (first, 1));
    let running = "SELECT count(*) FROM semel.jobs WHERE state = 2";
    assert_eq!(direct.count(running).await, 1, "nobody else's time is used");
    worker.complete(job, "1").await;
    let [next] = take(&worker).await.try_into().expect("the other job");
    assert_eq!((next.id, next.attempt), (second, 1));
    let look = direct.jobs.queue().look(first).await.expect("an answer");
    assert_eq!(look.expect("a job").state, JobState::Done);
}

#[tokio::test]
async fn a_lost_reply_to_taking_a_job_uses_up_no_attempt() {
    takes_one_through(QueueConfig::default(), 0).await;
}

#[tokio::test]
async fn nor_does_one_where_only_so_many_may_run() {
    // The transaction's beginning, its lock, the jobs, its end: cut before the jobs are told, and
    // before the end is.
    for lots in [2, 3] {
        let mut config = QueueConfig::default();
        config.limits.running.insert("charge".to_owned(), 1);
        takes_one_through(config, lots).await;
    }
}
