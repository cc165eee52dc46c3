//! A master dies and a replica takes its place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::FakeClock;
use semel_core::store::Store as _;
use semel_core::{Claimed, StoreErrorKind};
use semel_stores::redis::RedisStore;
use semel_testkit::private::RedisServer;

use super::memory::half_a_minute;
use crate::support::{again, clock, complete, key_of, scene};

/// A master, a replica and a sentinel of one's own, which fails over after some seconds: no sooner,
/// or a busy machine looks like a dead master.
pub(crate) struct Watched {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    sentinel: RedisServer,
}

impl Watched {
    pub(crate) async fn start() -> Self {
        let master = RedisServer::start(&["--repl-diskless-sync-delay", "0"]).await;
        let port = master.port().to_string();
        let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]).await;
        // Before that, a failover loses what was acknowledged, and the test would blame us.
        master.until(&["INFO", "replication"], "state=online").await;
        let settings = format!(
            "sentinel monitor semel 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds semel 5000\n\
             sentinel failover-timeout semel 3000\n"
        );
        let program = Path::new("redis-server");
        let sentinel = RedisServer::start_as(program, &settings, &["--sentinel"]).await;
        sentinel
            .until(&["SENTINEL", "MASTER", "semel"], "num-slaves\n1")
            .await;
        Self {
            master,
            replica,
            sentinel,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/semel", self.sentinel.port())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_follows_a_failover_and_reports_it() {
    let mut servers = Watched::start().await;
    let time = FakeClock::new();
    let store = RedisStore::open(&servers.url(), Arc::new(time.clone()))
        .await
        .unwrap();
    let corner = scene(servers.url()).await;
    let (done, running) = (corner.fresh().unwrap(), corner.fresh().unwrap());
    let Claimed::Won(first) = store.claim(&done).await.unwrap() else {
        panic!("a fresh key is won");
    };
    store.settle(&first, &complete("before")).await.unwrap();
    let Claimed::Won(lease) = store.claim(&running).await.unwrap() else {
        panic!("a fresh key is won");
    };
    servers
        .replica
        .until(&["EXISTS", &key_of(&running.identity)], "1")
        .await;
    assert_eq!(store.health().changes, 0);

    servers.master.kill();
    let mut tries = 0;
    loop {
        match store.claim(&corner.fresh().unwrap()).await {
            Ok(Claimed::Won(_)) => break,
            Ok(other) => panic!("a fresh key is won, not {other:?}"),
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        }
        tries += 1;
        assert!(tries < 600, "the new master was never found");
        clock().sleep(Duration::from_millis(100)).await;
    }
    assert!(tries > 0, "the master was dead");
    // What had reached the replica is there, and its owner still owns it.
    assert!(matches!(
        store.claim(&again(&done)).await.unwrap(),
        Claimed::Replay(_)
    ));
    assert_eq!(
        store.settle(&lease, &complete("after")).await.unwrap(),
        semel_core::Settled::Done
    );

    half_a_minute(&time, || store.health().changes == 1).await;
    let health = store.health();
    assert_eq!((health.masters, health.evicts), (1, false));
    assert!(health.changed_at.is_some());
}

/// A restart is seen too: what was not on disk is gone with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_reported() {
    let mut server = RedisServer::start(&["--appendonly", "yes"]).await;
    let time = FakeClock::new();
    let store = RedisStore::open(&server.url(), Arc::new(time.clone()))
        .await
        .unwrap();
    half_a_minute(&time, || store.health().changes == 0).await;
    server.restart().await;
    // The first look after it may meet the broken connection only.
    half_a_minute(&time, || true).await;
    half_a_minute(&time, || store.health().changes == 1).await;
}
