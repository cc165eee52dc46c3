//! An S3 server keeps every rule, and Azure's emulator those that it is asked.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::ObjectStoreExt as _;
use semel_conformance::{ALL, Scene, Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_stores::object::ObjectStore;

use super::support::{clock, open, own_url_of};

/// A folder of a bucket, as two processes see it.
struct Bucket {
    store: ObjectStore,
    another: ObjectStore,
}

impl Bucket {
    async fn at(variable: &str) -> Self {
        let url = own_url_of(variable);
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
        Spans::new(
            Duration::from_secs(1),
            Duration::from_secs(4),
            Duration::from_millis(3_800),
        )
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

semel_conformance::conformance_tests!(seaweed, async || Bucket::at("SEMEL_TEST_S3_URL").await);

/// One check for every kind of call, in one process and a few at a time: the emulator is slow.
fn is_short(name: &str) -> bool {
    [
        "p04_a_new",
        "p04_a_lapsed",
        "p05",
        "p06",
        "p07",
        "p09",
        "p12",
        "p14",
        "p16",
        "p18",
        "p19",
        "p22",
        "p25",
        "p29_each",
    ]
    .iter()
    .any(|rule| name.starts_with(rule))
}

/// Azure's conditions, as its makers' emulator has them.
#[tokio::test(flavor = "multi_thread")]
async fn azure_keeps_the_rules_too() {
    let subject: Arc<dyn Subject> = Arc::new(Bucket::at("SEMEL_TEST_AZ_URL").await);
    let checks = ALL.iter().filter(|check| is_short(check.name));
    let mut verdicts = futures_util::stream::iter(checks)
        .map(|check| {
            let run = (check.run)(Scene::new(Arc::clone(&subject)));
            async move { (check.name, tokio::spawn(run).await) }
        })
        .buffer_unordered(6);
    while let Some((name, verdict)) = verdicts.next().await {
        let verdict = verdict.expect("no panic");
        verdict.unwrap_or_else(|why| panic!("{name}: {why:#}"));
    }
}
