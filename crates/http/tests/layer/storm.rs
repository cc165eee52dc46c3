//! Ten thousand duplicates of one key, all while the first still runs, over 64 connections.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use semel::Semel;
use semel::http::{Profile, Route};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::support::*;

/// Counts what is taken and given back.
#[global_allocator]
static COUNTED: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const DUPLICATES: usize = 10_000;
const CONNECTIONS: usize = 64;

/// What became of all of them, by status, while one runs for as long as the others are not `told`.
async fn storm(semel: &Semel, profile: Profile, told: usize) -> (HashMap<u16, usize>, usize) {
    let (runs, answered) = (Runs::default(), Arc::new(AtomicUsize::new(0)));
    let (counted, seen) = (runs.clone(), Arc::clone(&answered));
    let handler = move || async move {
        counted.begin();
        while seen.load(Ordering::SeqCst) < told {
            pause(5).await;
        }
        "done"
    };
    // A scope of its own for every run: the store may have seen this key before.
    let scope = format!("storm-{:032x}", semel::tokio_env().entropy.next_u128());
    let route = Route::new().profile(profile).scope(&scope);
    let layer = semel.http_builder().defaults(route).build();
    let app = Router::new().route("/", on_post(handler));
    let address = serve(app.layer(layer.expect("a layer"))).await;

    let clock = semel::tokio_env().clock;
    let began = clock.now();
    let connections = (0..CONNECTIONS).map(|i| {
        let count = DUPLICATES / CONNECTIONS + usize::from(i < DUPLICATES % CONNECTIONS);
        tokio::spawn(on_one_connection(address, count, Arc::clone(&answered)))
    });
    let mut by_status = HashMap::new();
    for statuses in futures_util::future::join_all(connections).await {
        for status in statuses.expect("a client") {
            *by_status.entry(status).or_insert(0) += 1;
        }
    }
    println!(
        "{profile:?}: {by_status:?} in {:?}",
        clock.now().since(began)
    );
    (by_status, runs.begun())
}

/// Sends `count` at once, each a stream of one HTTP/2 connection.
async fn on_one_connection(
    address: std::net::SocketAddr,
    count: usize,
    answered: Arc<AtomicUsize>,
) -> Vec<u16> {
    let client = Client::connect(address, Protocol::Http2).await;
    let all = (0..count).map(|_| {
        let (mut client, answered) = (client.share(), Arc::clone(&answered));
        async move {
            let answer = client.send(post("/", "k", "{}")).await;
            answered.fetch_add(1, Ordering::SeqCst);
            answer.status.as_u16()
        }
    });
    futures_util::future::join_all(all).await
}

async fn survives(url: &str) {
    let semel = Semel::open(url).await.expect("a store");
    // One runs, ten wait, everybody else is told at once.
    let (by_status, runs) = storm(&semel, Profile::Ietf, DUPLICATES - 11).await;
    assert_eq!(runs, 1);
    assert_eq!(
        by_status,
        HashMap::from([(200, 11), (429, DUPLICATES - 11)])
    );
    leaves_nothing(&semel).await;
    // One runs, nobody waits.
    let (by_status, runs) = storm(&semel, Profile::Stripe, DUPLICATES - 1).await;
    assert_eq!(runs, 1);
    assert_eq!(by_status, HashMap::from([(200, 1), (409, DUPLICATES - 1)]));
    leaves_nothing(&semel).await;
    // Whatever is set up once has been by now: another storm takes no memory that it doesn't give
    // back.
    let held = || {
        let seen = INSTRUMENTED_SYSTEM.stats();
        seen.bytes_allocated.saturating_sub(seen.bytes_deallocated)
    };
    let before = held();
    storm(&semel, Profile::Stripe, DUPLICATES - 1).await;
    leaves_nothing(&semel).await;
    let bound = before + DUPLICATES * 16;
    until("memory is given back", || held() < bound).await;
}

async fn leaves_nothing(semel: &Semel) {
    let engine = semel.engine();
    let idle = || engine.waiting() + engine.running() + engine.busy_keys() == 0;
    until("nothing runs or waits", idle).await;
    // What stays is the server, the sweeper, the store's own: none for a request or a connection.
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    until("no task is left", || tasks() < 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_duplicates_in_memory_run_once() {
    let limit = Duration::from_secs(120);
    let survives = tokio::time::timeout(limit, survives("memory://"));
    survives.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs servers"]
async fn ten_thousand_duplicates_on_redis_run_once() {
    let url = std::env::var("SEMEL_TEST_REDIS_URL");
    let url = url.expect("`cargo xtask services up redis` says what to set");
    let limit = Duration::from_secs(120);
    tokio::time::timeout(limit, survives(&url)).await.unwrap();
}
