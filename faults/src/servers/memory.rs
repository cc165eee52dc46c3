//! The store in memory: workers are threads, and each call may be refused, lost, repeated or late.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;
use semel::core::{BoxFuture, MemoryConfig, MemoryStore, StoreAdmin};
use semel_testkit::broken::{BrokenStore, Bug};
use semel_testkit::faulty::{Faults, FaultyStore};
use semel_testkit::proxy::Proxy;

use super::{Backend, Shared};
use crate::clock::MachineClock;
use crate::kinds::Kind;
use crate::place::WorkerPlace;

/// Records in the harness's memory.
pub(crate) struct Memory {
    store: FaultyStore,
}

const RECORDS: usize = 4_000_000;
const LEASE: Duration = Duration::from_millis(400);
const FAULTS: Faults = Faults {
    refuse: 0.004,
    lose_request: 0.004,
    lose_reply: 0.004,
    delay: 0.002,
    longest_delay: Duration::from_millis(700),
    lose_wake: 0.01,
    ..Faults::NONE
};
/// Threads can't be stopped as processes can: what makes an owner late is a renewal and a
/// settlement that are.
const LATE: Faults = Faults {
    delay: 0.1,
    longest_delay: Duration::from_millis(1_200),
    ..FAULTS
};

fn memory() -> Arc<dyn StoreAdmin> {
    let config = MemoryConfig::default().with_capacity(RECORDS);
    Arc::new(MemoryStore::new(config, MachineClock::shared()))
}

impl Memory {
    pub(crate) fn sound(seed: u64) -> Self {
        Self::over(memory(), FAULTS, seed)
    }

    /// A sound store on the day that [`Self::unconditional`] has.
    pub(crate) fn sound_when_late(seed: u64) -> Self {
        Self::over(memory(), LATE, seed)
    }

    /// A store that completes whatever it is told to, by whomever: how some layers do it.
    pub(crate) fn unconditional(seed: u64) -> Self {
        let bug = Some(Bug::SettleIgnoresOwner);
        let store = BrokenStore::new(bug, MachineClock::shared());
        Self::over(Arc::new(store), LATE, seed)
    }

    fn over(store: Arc<dyn StoreAdmin>, faults: Faults, seed: u64) -> Self {
        Self {
            store: FaultyStore::new(store, MachineClock::shared(), faults, seed),
        }
    }
}

impl Backend for Memory {
    fn place(&self) -> WorkerPlace {
        WorkerPlace::Threads(Arc::new(self.store.clone()))
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn has_wall_clock(&self) -> bool {
        false
    }

    fn ways(&self) -> &[Proxy] {
        &[]
    }

    fn kinds(&self) -> Vec<Kind> {
        Vec::new()
    }

    fn strike<'a>(
        &'a mut self,
        _: Kind,
        _: &'a mut StdRng,
        _: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async { Ok(0) })
    }

    fn by_itself(&self) -> u64 {
        self.store.befallen() as u64
    }
}
