//! Servers of several versions: a failover or a rollback may bring one that knows fewer commands.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::FakeClock;
use semel_core::store::{Store as _, StoreAdmin as _};
use semel_core::{Claim, Claimed, Grant, Settled};
use semel_stores::redis::RedisStore;
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::Proxy;

use super::memory::half_a_minute;
use crate::support::{again, clock, complete, scene, valkey_program};

/// How the store settles, as it tells operators.
async fn way_to_settle(store: &RedisStore) -> String {
    let findings = store.diagnose().await.expect("findings");
    let version = findings.iter().find(|finding| finding.check == "version");
    version.expect("the version is told").found.clone()
}

/// Wins a fresh key, on a connection that may have to be made first.
async fn won(store: &RedisStore, claim: &Claim) -> Grant {
    let mut pause = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..3_000 {
        pause.tick().await;
        match store.claim(claim).await {
            Ok(Claimed::Won(lease)) => return lease,
            Ok(other) => panic!("a fresh key is won, not {other:?}"),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    panic!("the new server was never reached");
}

/// `SET … IFEQ` settles on the first server, and is a syntax error on the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_set_ifeq_settles_what_began_before_it_was_noticed() {
    let new = RedisServer::start_as(&valkey_program().await, "", &[]).await;
    let old = RedisServer::start(&[]).await;
    let proxy = Proxy::to(new.address(), clock()).await.unwrap();
    let time = FakeClock::new();
    let url = format!("redis://{}", proxy.address());
    let store = RedisStore::open(&url, Arc::new(time.clone()))
        .await
        .unwrap();
    let corner = scene(old.url()).await;
    assert!(way_to_settle(&store).await.contains("one plain command"));

    proxy.lead_to(old.address());
    proxy.cut_all();
    let claim = corner.fresh().unwrap();
    let lease = won(&store, &claim).await;
    assert_eq!(
        store.settle(&lease, &complete("done")).await.unwrap(),
        Settled::Done
    );
    corner.replayed(&again(&claim)).await.unwrap();

    half_a_minute(&time, || true).await;
    assert!(way_to_settle(&store).await.contains("by a script"));
    proxy.lead_to(new.address());
    proxy.cut_all();
    // The first look after it may meet the broken connection only.
    half_a_minute(&time, || true).await;
    half_a_minute(&time, || true).await;
    assert!(way_to_settle(&store).await.contains("one plain command"));
}
