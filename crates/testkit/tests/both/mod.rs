//! Two stores in memory on one clock: the old one, and the new.

use std::sync::Arc;

use semel_conformance::clock::FakeClock;
use semel_core::{MemoryConfig, MemoryStore};
use semel_stores::compose::Mirror;

pub(crate) struct Both {
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) old: MemoryStore,
    pub(crate) new: MemoryStore,
}

impl Both {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(FakeClock::new());
        let store = || MemoryStore::new(MemoryConfig::default(), clock.clone());
        let (old, new) = (store(), store());
        Self { clock, old, new }
    }

    pub(crate) fn mirror(&self) -> Mirror {
        Mirror::new(Arc::new(self.old.clone()), Arc::new(self.new.clone()))
    }
}
