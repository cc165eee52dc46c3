//! A broken store as a subject of the suite.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{BoxFuture, Identity, StoreAdmin};

use super::{BrokenStore, Bug};
use semel_conformance::clock::FakeClock;
use semel_conformance::{Spans, Subject};

/// A store with this bug, or with none, on a clock that the suite moves.
pub struct BrokenSubject {
    bug: Option<Bug>,
    clock: Arc<FakeClock>,
    store: BrokenStore,
}

impl BrokenSubject {
    /// An empty store.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> Self {
        let clock = Arc::new(FakeClock::new());
        let store = BrokenStore::new(bug, clock.clone());
        Self { bug, clock, store }
    }
}

impl Subject for BrokenSubject {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.another())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(tokio::task::yield_now())
    }

    fn spans(&self) -> Spans {
        Spans::FREE
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async {
            let tiny = BrokenStore::bounded(self.bug, self.clock.clone(), Some(3));
            Some(Arc::new(tiny) as Arc<dyn StoreAdmin>)
        })
    }

    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        Box::pin(async { self.store.spoil(identity) })
    }
}
