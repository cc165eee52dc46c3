//! PostgreSQL keeps every rule: the conformance suite on a single server, behind PgBouncer in
//! transaction mode, and with a synchronous replica.
//!
//! `cargo xtask services up postgres pgbouncer postgres-sync` starts them; without them these tests
//! fail.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_stores::postgres::PostgresStore;
use sqlx::Connection as _;
use sqlx::types::Uuid;

struct Server {
    url: String,
    store: PostgresStore,
    another: PostgresStore,
}

impl Server {
    async fn at(variable: &str, options: &str) -> Self {
        let url = std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: start the servers with `cargo xtask services up`")
        });
        let clock = semel::tokio_env().clock;
        let with_options = format!("{url}{options}");
        let open = || PostgresStore::open(&with_options, Arc::clone(&clock));
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

    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let options = sqlx::postgres::PgConnectOptions::from_str(&self.url).expect("a URL");
            // PgBouncer takes no such parameter.
            let options = options.extra_float_digits(None);
            let connection = sqlx::PgConnection::connect_with(&options).await;
            let mut connection = connection.expect("a server");
            let address = Uuid::from_bytes(identity.address());
            let text = format!("UPDATE semel.records SET format = 99 WHERE address = '{address}'");
            let spoilt = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut connection);
            spoilt.await.expect("a server").rows_affected() == 1
        })
    }
}

semel_conformance::conformance_tests!(postgres, async || Server::at("SEMEL_TEST_POSTGRES_URL", "")
    .await);
semel_conformance::conformance_tests!(pgbouncer, async || {
    Server::at("SEMEL_TEST_PGBOUNCER_URL", "?pooler=transaction").await
});
semel_conformance::conformance_tests!(synchronous_replica, async || {
    Server::at("SEMEL_TEST_POSTGRES_SYNC_URL", "").await
});
