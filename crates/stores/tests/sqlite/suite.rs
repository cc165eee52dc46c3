//! SQLite keeps every rule: the conformance suite, each check on a file of its own.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_stores::sqlite::SqliteStore;

use crate::Place;

pub(crate) struct File {
    place: Place,
    store: SqliteStore,
    another: SqliteStore,
}

impl File {
    pub(crate) async fn new() -> Self {
        let place = Place::new();
        let (store, another) = (place.open().await, place.open().await);
        Self {
            place,
            store,
            another,
        }
    }
}

impl Subject for File {
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
            let mut connection = self.place.raw().await;
            let text = "UPDATE records SET record = CAST(x'63' || substr(record, 2) AS BLOB) WHERE address = ?";
            let spoilt = sqlx::query(text).bind(identity.address().to_vec());
            spoilt
                .execute(&mut connection)
                .await
                .expect("a file")
                .rows_affected()
                == 1
        })
    }
}

semel_conformance::conformance_tests!(sqlite, async || File::new().await);
