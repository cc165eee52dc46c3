//! SQLite with encrypted records: every rule, and what is refused.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{BoxFuture, Identity};

use crate::encrypted::{Bounded, encrypted, key};
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

/// The folder has to live as long as its store.
macro_rules! on_a_file {
    ($($name:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let place = Place::new();
                let store = open(&place.url()).await.expect("a file");
                crate::encrypted::$name(Arc::new(store)).await;
            }
        )+
    };
}

on_a_file!(
    a_round_trip_leaves_nothing_readable,
    a_flipped_bit_is_refused,
    a_moved_field_is_refused,
    an_old_answer_is_refused,
    a_wrong_key_is_refused,
    nobody_takes_over_without_the_key,
    keys_rotate,
    plain_records_are_read_or_refused,
);
