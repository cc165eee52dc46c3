//! An S3 server keeps every rule.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt as _;
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_stores::object::ObjectStore;
use semel_testkit::conformance::{Spans, Subject};

use super::support::{clock, open, own_url};

/// A folder of a bucket, as two processes see it.
struct Bucket {
    store: ObjectStore,
    another: ObjectStore,
}

impl Bucket {
    async fn new() -> Self {
        let url = own_url();
        Self {
            store: open(&url).await,
            another: open(&url).await,
        }
    }
}

impl Subject for Bucket {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.another.clone())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        clock().sleep(time)
    }

    /// The server tells the time in seconds, and a margin comes on top of every span.
    fn spans(&self) -> Spans {
        Spans {
            lease: Duration::from_secs(1),
            retention: Duration::from_secs(4),
            grace: Duration::from_millis(3_300),
        }
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async { None })
    }

    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let (client, path) = (self.store.client(), self.store.path_of(identity));
            let found = client.get(&path).await.expect("a record");
            let mut bytes = found.bytes().await.expect("a record").to_vec();
            bytes[0] = 99;
            client.put(&path, bytes.into()).await.expect("a server");
            true
        })
    }
}

semel_testkit::conformance_tests!(seaweed, Bucket::new);
