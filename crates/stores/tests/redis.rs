//! Redis and Valkey keep every rule: the conformance suite on real servers.
//!
//! `cargo xtask services up redis valkey` starts them; without them these tests fail.
#![cfg(feature = "redis")]

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

impl Server {
    async fn at(variable: &str) -> Self {
        let url = std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: start the servers with `cargo xtask services up`")
        });
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
            let client = redis::Client::open(&*self.url).expect("a URL");
            let mut connection = client
                .get_multiplexed_async_connection()
                .await
                .expect("a server");
            let hex: String = identity
                .address()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let key = format!("{DEFAULT_PREFIX}{hex}");
            let () = redis::cmd("SETRANGE")
                .arg(key)
                .arg(0)
                .arg(&[99_u8][..])
                .query_async(&mut connection)
                .await
                .expect("a server");
            true
        })
    }
}

semel_testkit::conformance_tests!(redis_7, async || Server::at("SEMEL_TEST_REDIS_URL").await);
semel_testkit::conformance_tests!(valkey_9, async || Server::at("SEMEL_TEST_VALKEY_URL").await);
