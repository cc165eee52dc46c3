//! An encrypted memory store keeps every rule.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{MemorySubject, Spans, Subject};
use semel_core::{BoxFuture, StoreAdmin};
use semel_stores::encrypted::{EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey};
use semel_testkit::bounded::Bounded;

struct Encrypted {
    memory: MemorySubject,
    keys: SharedKeyring,
}

impl Encrypted {
    fn new() -> Self {
        let key = EncryptionKey::new(1, &[7; 32]).expect("a key");
        let keys = Keyring::new(vec![key], WriteKey::Newest).expect("a ring");
        Self {
            memory: MemorySubject::new(),
            keys: SharedKeyring::new(keys),
        }
    }

    fn over(&self, store: Arc<dyn StoreAdmin>) -> Arc<dyn StoreAdmin> {
        Arc::new(Bounded(EncryptedStore::new(store, self.keys.clone(), true)))
    }
}

impl Subject for Encrypted {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        self.over(self.memory.store())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        self.over(self.memory.another())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.memory.pass(time)
    }

    fn spans(&self) -> Spans {
        self.memory.spans()
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async {
            let tiny = self.memory.tiny().await?;
            Some(self.over(tiny))
        })
    }

    fn encrypts(&self) -> bool {
        true
    }
}

semel_conformance::conformance_tests!(encrypted, async || Encrypted::new());
