//! What a worker is given has its lease before it.

use std::time::Duration;

use futures_util::future::join;
use semel_jobs::{LeaseOptions, Queue as _};
use semel_testkit::http_proxy::HttpFault;
use semel_testkit::proxy::{Proxy, Way};

use crate::support::{Bench, variable};

/// As many as there are.
fn all(span: Duration) -> LeaseOptions {
    let mut ask = LeaseOptions::new("w-1", &["charge_customer"]);
    ask.most = 100;
    ask.span = span;
    ask
}

#[tokio::test]
async fn nothing_is_read_after_as_many_as_were_asked_for_are_taken() {
    let direct = Bench::new().await;
    let (proxy, bench) = direct.behind_a_proxy().await;
    // Several, since the last shard of all may happen to be the one that has it.
    for round in 0..4 {
        bench.submit(&format!("k-{round}"), 5).await;
        drop(proxy.requests());
        assert!(bench.take(Duration::from_secs(30)).await.is_some());
        let requests = proxy.requests();
        let last = requests.last().map(String::as_str);
        assert_eq!(last, Some("PUT"), "round {round}: {requests:?}");
    }
}

#[tokio::test]
async fn a_worker_gets_what_was_found_while_its_first_lease_was_young() {
    let endpoint = variable("SEMEL_TEST_S3_ENDPOINT");
    let server = endpoint.replace("http://", "").parse().unwrap();
    let clock = semel::tokio_env().clock;
    let proxy = Proxy::to(server, clock).await.unwrap();
    let direct = Bench::new().await;
    let through = format!("http://{}", proxy.address());
    let bench = Bench::at(direct.url.replace(&endpoint, &through)).await;
    for n in 0..24 {
        bench.submit(&format!("k-{n}"), n).await;
    }
    // To look through all of them, and to take them, is then more than the lease.
    proxy.delay(Way::Reply, Duration::from_millis(100));
    let leased = bench.queue.lease(&all(Duration::from_secs(5))).await;
    let (leased, now) = (leased.unwrap(), bench.store.server_time());
    assert!((1..24).contains(&leased.len()), "{}", leased.len());
    for job in leased {
        let found = direct.queue.look(job.id).await.unwrap().unwrap();
        let age = now.since(found.started_at.unwrap());
        assert!(age < Duration::from_millis(2500), "{age:?}");
    }
}

#[tokio::test]
async fn tasks_leased_before_a_server_failure_are_returned() {
    let direct = Bench::new().await;
    let (proxy, bench) = direct.behind_a_proxy().await;
    for n in 0..24 {
        bench.submit(&format!("k-{n}"), n).await;
    }
    drop(proxy.requests());
    let fails_after_the_first_take = async {
        while !proxy.requests().iter().any(|method| method == "PUT") {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            proxy.next("GET", HttpFault::Refused(503));
        }
    };
    let ask = all(Duration::from_secs(30));
    let (leased, ()) = join(bench.queue.lease(&ask), fails_after_the_first_take).await;
    let leased = leased.expect("what was taken").len();
    assert!((1..24).contains(&leased), "{leased}");
    assert!(proxy.armed() < 100, "the server failed");
    let counts = direct.queue.counts().await.unwrap();
    assert_eq!(counts.running, leased as u64);
    assert_eq!(counts.queued, 24 - counts.running);
}
