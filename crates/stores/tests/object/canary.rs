//! The canary in a bucket (P41): the bucket's own rule doesn't remove it while it is needed, and
//! without it a node with another secret is refused all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::ObjectStoreExt as _;
use semel::{OpenError, Semel};
use semel_core::clock::Sleep;
use semel_core::store::StoreAdmin as _;
use semel_core::{Clock, Identity, Key, Namespace, Secret, Tick, Timestamp, canary};
use semel_stores::object::ObjectStore;

use super::support::{clock, open, open_with, own_url};

fn secret(id: u16) -> Secret {
    let byte = u8::try_from(id).expect("a small id");
    Secret::new(id, &[byte; 32]).expect("a secret")
}

async fn start(url: &str, id: u16) -> Result<Semel, OpenError> {
    Semel::builder().secret(secret(id)).open(url).await
}

/// Where the canary lies.
fn place(store: &ObjectStore) -> object_store::path::Path {
    let namespace = Namespace::new("", "", "semel.canary").expect("a namespace");
    let key = Key::parse("secret").expect("a key");
    store.path_of(&Identity::new(&Secret::none(), &namespace, &key))
}

/// Changes with every write.
async fn tag(store: &ObjectStore) -> String {
    let meta = store.client().head(&place(store)).await.expect("a canary");
    meta.e_tag.expect("a tag")
}

/// The bucket counts days since the last write.
#[tokio::test]
async fn p41_every_start_writes_the_canary_anew() {
    let url = own_url();
    let store = open(&url).await;
    let _first = start(&url, 1).await.expect("a new bucket");
    let before = tag(&store).await;
    let _second = start(&url, 1).await.expect("the same secret");
    assert_ne!(tag(&store).await, before, "it was not written");
    let refused = start(&url, 2).await;
    assert!(
        matches!(refused, Err(OpenError::Canary(_))),
        "{:?}",
        refused.err()
    );
    // Nor does whoever is refused keep it alive, or end it.
    let before = tag(&store).await;
    assert!(start(&url, 2).await.is_err());
    assert_eq!(tag(&store).await, before);
}

/// A clock that a test sets forward.
struct Forward {
    real: Arc<dyn Clock>,
    by_seconds: AtomicU64,
}

impl Clock for Forward {
    fn now(&self) -> Tick {
        let by = Duration::from_secs(self.by_seconds.load(Ordering::SeqCst));
        self.real.now().plus(by)
    }

    fn wall(&self) -> Timestamp {
        self.real.wall()
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        self.real.sleep(for_time)
    }
}

#[tokio::test]
async fn p41_a_process_that_runs_for_long_writes_the_canary_anew() {
    let clock = Arc::new(Forward {
        real: clock(),
        by_seconds: AtomicU64::new(0),
    });
    // Also where removing records is left to the rule.
    let url = format!("{}&sweep=off", own_url());
    let store = open_with(&url, clock.clone()).await;
    canary::check(&store, &semel::tokio_env(), &secret(1), "")
        .await
        .expect("a new bucket");
    let first = tag(&store).await;
    store.sweep(10).await.expect("a sweep");
    assert_eq!(tag(&store).await, first, "it was written a moment ago");
    clock.by_seconds.store(24 * 3600, Ordering::SeqCst);
    store.sweep(10).await.expect("a sweep");
    assert_ne!(tag(&store).await, first, "it was not written for a day");
}

#[tokio::test]
async fn p41_a_node_with_another_secret_is_refused_when_the_canary_was_removed() {
    let url = own_url();
    let store = open(&url).await;
    let semel = start(&url, 1).await.expect("a new bucket");
    let call = semel.operation("charge").key("a-key").payload(&1);
    let ran = call.run(async |_| Ok::<_, std::io::Error>(1)).await;
    ran.expect("an answer");
    let removed = store.client().delete(&place(&store)).await;
    removed.expect("as the rule does");
    let refused = start(&url, 2).await;
    assert!(
        matches!(refused, Err(OpenError::Canary(_))),
        "{:?}",
        refused.err()
    );
    // The right ones make it anew.
    let _right = start(&url, 1).await.expect("the same secret");
    tag(&store).await;
}
