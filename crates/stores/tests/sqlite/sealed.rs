//! SQLite with encrypted records: every rule, and what is refused.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};
use semel_testkit::bounded::Bounded;

use crate::encrypted::{encrypted, key};
use crate::suite::File;
use crate::{Place, open};

struct EncryptedFile(File);

impl Subject for EncryptedFile {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(Bounded(encrypted(&self.0.store(), vec![key(1, 1)])))
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(Bounded(encrypted(&self.0.another(), vec![key(1, 1)])))
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(time)
    }

    fn spans(&self) -> Spans {
        self.0.spans()
    }

    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        self.0.spoil(identity)
    }

    fn encrypts(&self) -> bool {
        true
    }
}

semel_conformance::conformance_tests!(encrypted_sqlite, async || EncryptedFile(File::new().await));

crate::encrypted::encrypted_tests!(async {
    let place = Place::new();
    (open(&place.url()).await.expect("a file"), place)
});
