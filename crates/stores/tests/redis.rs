//! Redis and Valkey keep every rule: the conformance suite on real servers.
//!
//! `cargo xtask services up redis valkey redis-sentinel redis-cluster` starts them; without them these tests
//! fail.
#![cfg(feature = "redis")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_stores::redis::{DEFAULT_PREFIX, RedisStore};
use semel_testkit::conformance::{Spans, Subject};

struct Server {
    url: String,
    store: RedisStore,
    another: RedisStore,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

/// The hosts in a list of URLs.
fn hosts(name: &str) -> String {
    variable(name).replace("redis://", "")
}

fn sentinel() -> String {
    let master = variable("SEMEL_TEST_REDIS_SENTINEL_MASTER");
    let sentinels = hosts("SEMEL_TEST_REDIS_SENTINEL_URLS");
    format!("redis+sentinel://{sentinels}/{master}")
}

fn cluster() -> String {
    format!("redis+cluster://{}", hosts("SEMEL_TEST_REDIS_CLUSTER_URLS"))
}

impl Server {
    async fn at(url: String) -> Self {
        let clock = semel::tokio_env().clock;
        let open = || RedisStore::open(&url, Arc::clone(&clock));
        let (store, another) = (
            open().await.expect("a server"),
            open().await.expect("a server"),
        );
        Self {
            url,
            store,
            another,
        }
    }
}

impl Subject for Server {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.another.clone())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        semel::tokio_env().clock.sleep(time)
    }

    fn spans(&self) -> Spans {
        Spans::SERVER
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async { None })
    }

    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let hex: String = identity
                .address()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let key = format!("{DEFAULT_PREFIX}{hex}");
            let mut change = redis::cmd("SETRANGE");
            change.arg(&key).arg(0).arg(&[99_u8][..]);
            support::send(&self.url, &change).await;
            true
        })
    }
}

semel_testkit::conformance_tests!(redis_7, async || Server::at(variable(
    "SEMEL_TEST_REDIS_URL"
))
.await);
semel_testkit::conformance_tests!(valkey_9, async || Server::at(variable(
    "SEMEL_TEST_VALKEY_URL"
))
.await);
semel_testkit::conformance_tests!(redis_sentinel, async || Server::at(sentinel()).await);
semel_testkit::conformance_tests!(redis_cluster, async || Server::at(cluster()).await);
