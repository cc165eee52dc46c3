//! Full memory, and servers that would forget records to make room.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::FakeClock;
use semel_conformance::{CheckVerdict, Scene};
use semel_core::store::Store as _;
use semel_core::{Certainty, Claim, Grant, Settlement, StoreErrorKind};
use semel_stores::redis::RedisStore;
use semel_testkit::private::RedisServer;

use crate::support::{again, complete, refused, scene, valkey_program};

/// P26: a new key needs room; nothing else does.
async fn a_full_server_refuses_only_new_keys(program: &Path) {
    let server = RedisServer::start_as(program, "", &[]).await;
    let scene = scene(server.url()).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let claim = scene.fresh().expect("a claim");
        let lease = scene.won(&claim).await.expect("room");
        running.push((claim, lease));
    }
    let _ = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let new = scene.fresh().expect("a claim");
    let error = scene.store().claim(&new).await.expect_err("no room");
    assert_eq!(
        (error.kind, error.certainty),
        (StoreErrorKind::Full, Certainty::Definite)
    );
    what_is_there_goes_on(&scene, &running)
        .await
        .expect("no new room is needed");
    let _ = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    scene.won(&new).await.expect("room");
}

async fn what_is_there_goes_on(scene: &Scene, running: &[(Claim, Grant)]) -> CheckVerdict {
    let [(one, lease), (two, second), (three, third)] = running else {
        panic!("three keys");
    };
    scene.held(lease, None).await?;
    scene.held(lease, Some(b"progress")).await?;
    scene.busy(&again(one)).await?;
    let resent = scene.won(one).await?;
    assert_eq!(resent.fence, lease.fence, "P6");
    scene.settled(lease, &complete("after")).await?;
    scene.replayed(&again(one)).await?;
    scene.settled(second, &Settlement::Release).await?;
    scene.won(&again(two)).await?;
    scene.settled(third, &Settlement::Doubt).await?;
    scene.in_doubt(&again(three)).await?;
    Ok(())
}

#[tokio::test]
async fn a_full_redis_refuses_only_new_keys() {
    a_full_server_refuses_only_new_keys(Path::new("redis-server")).await;
}

/// The other way to settle, by `SET … IFEQ`.
#[tokio::test]
async fn a_full_valkey_refuses_only_new_keys() {
    a_full_server_refuses_only_new_keys(&valkey_program().await).await;
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_at_start() {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]).await;
    let said = refused(&server.url()).await;
    assert!(said.contains("noeviction"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_set_to_evict_later_gets_no_new_claims() {
    let server = RedisServer::start(&[]).await;
    let clock = FakeClock::new();
    let store = RedisStore::open(&server.url(), Arc::new(clock.clone()))
        .await
        .unwrap();
    let corner = scene(server.url()).await;
    let claim = corner.fresh().unwrap();
    let semel_core::Claimed::Won(lease) = store.claim(&claim).await.unwrap() else {
        panic!("a fresh key is won");
    };
    let set = |policy| server.ask(&["CONFIG", "SET", "maxmemory-policy", policy]);

    let _ = set("allkeys-lru");
    half_a_minute(&clock, || store.health().evicts).await;
    let error = store
        .claim(&corner.fresh().unwrap())
        .await
        .expect_err("refused");
    assert_eq!(
        (error.kind, error.certainty),
        (StoreErrorKind::Rejected, Certainty::Definite)
    );
    // What was begun can be ended.
    let settled = store.settle(&lease, &complete("done")).await.unwrap();
    assert_eq!(settled, semel_core::Settled::Done);

    let _ = set("noeviction");
    half_a_minute(&clock, || !store.health().evicts).await;
    store.claim(&corner.fresh().unwrap()).await.unwrap();
}

/// Lets the store's clock go on by half a minute, the most that a change may go unnoticed.
pub(super) async fn half_a_minute(clock: &FakeClock, mut seen: impl FnMut() -> bool) {
    for _ in 0..3 {
        watcher_sleeps(clock).await;
        clock.advance(Duration::from_secs(10));
    }
    watcher_sleeps(clock).await;
    assert!(seen(), "not noticed within half a minute");
}

/// Until the store's watcher has done its round.
async fn watcher_sleeps(clock: &FakeClock) {
    let mut pause = tokio::time::interval(Duration::from_millis(2));
    for _ in 0..5_000 {
        pause.tick().await;
        if clock.sleepers() > 0 {
            return;
        }
    }
    panic!("nobody watches");
}
