//! The canaries of encryption keys: who may start on a store, and how a lost key is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_conformance::clock::{FakeClock, env};
use semel_core::{
    BoxFuture, Claim, Claimed, MemoryConfig, MemoryStore, Store, StoreAdmin, StoreResult,
};
use semel_stores::encrypted::canary::{self, Forgotten, KeyCanaryError};
use semel_stores::encrypted::{EncryptionKey, Keyring, WriteKey};

fn ring(ids: &[u8], write: WriteKey) -> Keyring {
    let keys = ids
        .iter()
        .map(|id| EncryptionKey::new(u32::from(*id), &[*id; 32]).expect("a key"));
    Keyring::new(keys.collect(), write).expect("a ring")
}

struct Nodes {
    clock: FakeClock,
    store: Yielding,
    started: AtomicU64,
}

impl Nodes {
    fn new() -> Self {
        let clock = FakeClock::new();
        let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
        Self {
            clock,
            store: Yielding(store),
            started: AtomicU64::default(),
        }
    }

    async fn start(&self, keys: &Keyring) -> Result<(), KeyCanaryError> {
        // Each has random numbers of its own.
        let env = env(&self.clock, self.started.fetch_add(1, Ordering::Relaxed));
        canary::check(&self.store, &env, keys, "test", 0).await
    }

    async fn look(&self, keys: &Keyring) -> Result<(), KeyCanaryError> {
        let env = env(&self.clock, 1);
        canary::check_read_only(&self.store, &env, keys, "test").await
    }

    async fn forget(&self, id: u32) -> Forgotten {
        let env = env(&self.clock, 1);
        let forgotten = canary::forget(&self.store, &env, "test", id).await;
        forgotten.expect("an answer")
    }

    /// Two nodes that start at the same moment.
    async fn start_both(
        &self,
        keys: [&Keyring; 2],
    ) -> (Result<(), KeyCanaryError>, Result<(), KeyCanaryError>) {
        let time = async {
            loop {
                self.clock.advance(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            both = async { tokio::join!(self.start(keys[0]), self.start(keys[1])) } => both,
            () = time => unreachable!("time doesn't end"),
        }
    }
}

/// A store that lets others run before each call.
struct Yielding(MemoryStore);

impl Store for Yielding {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.claim(claim).await
        })
    }

    semel_core::forward_store!(|self| self.0 => renew, settle, resolve, read, watch, capabilities);
}

impl StoreAdmin for Yielding {
    semel_core::forward_store!(|self| self.0 => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}

#[tokio::test]
async fn of_two_first_nodes_with_different_keys_one_starts() {
    let nodes = Nodes::new();
    let (one, two) = (ring(&[1], WriteKey::Newest), ring(&[2], WriteKey::Newest));
    match nodes.start_both([&one, &two]).await {
        (Ok(()), Err(KeyCanaryError::NoKnownKey)) | (Err(KeyCanaryError::NoKnownKey), Ok(())) => {}
        both => panic!("{both:?}"),
    }
    let nodes = Nodes::new();
    let both = nodes
        .start_both([&one, &ring(&[1, 2], WriteKey::Newest)])
        .await;
    assert!(matches!(both, (Ok(()), Ok(()))), "{both:?}");
}

#[tokio::test]
async fn a_node_without_any_key_does_not_start_once_records_are_encrypted() {
    let nodes = Nodes::new();
    nodes
        .start(&Keyring::empty())
        .await
        .expect("nothing is encrypted");
    // A fleet that is about to switch on only reads: nodes without keys may still come and go.
    nodes
        .start(&ring(&[1], WriteKey::Nothing))
        .await
        .expect("a reader");
    nodes
        .look(&Keyring::empty())
        .await
        .expect("nothing is encrypted");
    nodes
        .start(&ring(&[1], WriteKey::Newest))
        .await
        .expect("a writer");
    for refused in [
        nodes.start(&Keyring::empty()).await,
        nodes.look(&Keyring::empty()).await,
    ] {
        assert!(matches!(refused, Err(KeyCanaryError::NoKey)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_lost_key_is_forgotten() {
    let nodes = Nodes::new();
    nodes
        .start(&ring(&[1, 2], WriteKey::Newest))
        .await
        .expect("a node");
    let stranger = ring(&[3], WriteKey::Newest);
    let refused = nodes.start(&stranger).await;
    assert!(
        matches!(refused, Err(KeyCanaryError::NoKnownKey)),
        "{refused:?}"
    );
    assert_eq!(nodes.forget(9).await, Forgotten::Nothing);
    assert_eq!(nodes.forget(1).await, Forgotten::Key);
    assert!(nodes.start(&stranger).await.is_err());
    assert_eq!(nodes.forget(2).await, Forgotten::LastKey);
    nodes.start(&stranger).await.expect("a first node again");
    // Its id may be given to another key.
    let again = EncryptionKey::new(1, &[77; 32]).expect("a key");
    let stranger = EncryptionKey::new(3, &[3; 32]).expect("a key");
    let keys = Keyring::new(vec![stranger, again], WriteKey::Newest).expect("a ring");
    nodes.start(&keys).await.expect("a new key with an old id");
}
