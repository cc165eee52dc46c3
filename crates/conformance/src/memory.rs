//! The memory store as a subject.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{BoxFuture, MemoryConfig, MemoryStore, StoreAdmin};

use super::{Spans, Subject};
use crate::clock::FakeClock;

/// The memory store on a clock that the suite moves.
pub struct MemorySubject {
    clock: Arc<FakeClock>,
    store: MemoryStore,
}

impl MemorySubject {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let clock = Arc::new(FakeClock::new());
        let store = MemoryStore::new(MemoryConfig::default(), clock.clone());
        Self { clock, store }
    }
}

impl Default for MemorySubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for MemorySubject {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    /// Another process never sees these records; a clone is as far apart as two handles get.
    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
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
            let tiny =
                MemoryStore::new(MemoryConfig::default().with_capacity(3), self.clock.clone());
            Some(Arc::new(tiny) as Arc<dyn StoreAdmin>)
        })
    }
}
