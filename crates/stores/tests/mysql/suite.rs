//! MariaDB keeps every rule: the conformance suite on a single server.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_stores::mysql::MySqlStore;
use sqlx::{Connection as _, MySqlConnection};

struct Server {
    url: String,
    store: MySqlStore,
    another: MySqlStore,
}

impl Server {
    async fn at(url: String) -> Self {
        let (store, another) = (crate::open(&url).await, crate::open(&url).await);
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
            let connection = MySqlConnection::connect(&self.url).await;
            let mut connection = connection.expect("a server");
            let text = "UPDATE semel_records SET format = 99 WHERE address = ?";
            let spoilt = sqlx::query(text).bind(identity.address().to_vec());
            let spoilt = spoilt.execute(&mut connection).await.expect("a server");
            spoilt.rows_affected() == 1
        })
    }
}

semel_conformance::conformance_tests!(mariadb, async || Server::at(crate::shared()).await);
