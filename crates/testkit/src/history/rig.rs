//! A store on a clock that its callers advance.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{BoxFuture, StoreAdmin};

use crate::faulty::{Faults, FaultyStore};
use semel_conformance::clock::FakeClock;
use semel_conformance::{Spans, Subject};

/// A store as two processes see it, for [`clients`](super::clients).
pub struct Rig {
    clock: Arc<FakeClock>,
    here: Arc<dyn StoreAdmin>,
    elsewhere: Arc<dyn StoreAdmin>,
}

impl Rig {
    /// Both processes see `store`, which lives by `clock`.
    #[must_use]
    pub fn new(clock: Arc<FakeClock>, store: Arc<dyn StoreAdmin>) -> Self {
        Self {
            clock,
            here: Arc::clone(&store),
            elsewhere: store,
        }
    }

    /// The second process sees `store`.
    #[must_use]
    pub fn elsewhere(self, store: Arc<dyn StoreAdmin>) -> Self {
        Self {
            elsewhere: store,
            ..self
        }
    }

    /// Calls fail on their way to the store and back.
    #[must_use]
    pub fn faulty(self, faults: Faults, seed: u64) -> Self {
        let behind = |store, seed| {
            let clock = Arc::clone(&self.clock);
            Arc::new(FaultyStore::new(store, clock, faults, seed)) as Arc<dyn StoreAdmin>
        };
        Self {
            here: behind(Arc::clone(&self.here), seed),
            elsewhere: behind(Arc::clone(&self.elsewhere), seed.wrapping_add(1)),
            clock: Arc::clone(&self.clock),
        }
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> Arc<FakeClock> {
        Arc::clone(&self.clock)
    }
}

impl Subject for Rig {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::clone(&self.here)
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::clone(&self.elsewhere)
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(tokio::task::yield_now())
    }

    fn spans(&self) -> Spans {
        Spans::FREE
    }
}
