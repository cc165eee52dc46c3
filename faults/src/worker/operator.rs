//! An operator beside the callers of a worker: inspects keys, unlocks, resolves doubts, deletes
//! records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::engine::{Engine, Unlock};
use semel::core::{Identity, Record, State, Store, StoreAdmin};
use semel_testkit::history::Recorder;
use tokio::task::JoinHandle;

use super::load::{Load, RECENT};
use super::words::stored;
use crate::clock::pass;

/// The operator's place in the list of a worker's random numbers.
const TASK: u64 = 2_000;

/// One operator.
pub(super) struct Operator {
    load: Arc<Load>,
    /// Writes down that an operator asks.
    recorder: Recorder,
    engine: Engine,
    rng: StdRng,
}

impl Load {
    /// Starts an operator beside the callers.
    pub(super) fn start_operator(self: &Arc<Self>) -> JoinHandle<()> {
        tokio::spawn(Operator::beside(self).work())
    }
}

impl Operator {
    fn beside(load: &Arc<Load>) -> Self {
        let recorder = load.recorder.operator();
        let store: Arc<dyn Store> = Arc::new(recorder.clone());
        Self {
            engine: load.semel.engine().with_store(store),
            load: Arc::clone(load),
            recorder,
            rng: load.rng(TASK),
        }
    }

    async fn work(mut self) {
        while !self.load.stop.load(Ordering::SeqCst) {
            pass(Duration::from_millis(self.rng.random_range(5..60))).await;
            let newest = self.load.next.load(Ordering::SeqCst);
            let index = newest.saturating_sub(self.rng.random_range(0..2 * RECENT));
            let identity = self.load.asked(index, false).identity;
            // An error is one of the faults of the day.
            if let Ok(Some(record)) = self.recorder.read(&identity).await {
                self.operate(&identity, &record).await;
            }
        }
    }

    /// Errors, and records that have moved on, are for the next look.
    async fn operate(&mut self, identity: &Identity, record: &Record) {
        let fence = record.fence;
        let forget = || self.load.semel.engine().forget(identity);
        match record.state {
            State::Running if self.rng.random_bool(0.5) => {
                let to = [Unlock::ByPolicy, Unlock::Release, Unlock::Doubt];
                let to = to[self.rng.random_range(0..to.len())];
                forget();
                let _ = self.engine.unlock(identity, fence, to).await;
                forget();
            }
            State::InDoubt => {
                let answer = format!("resolved-{:x}", self.rng.random::<u64>());
                let resolution = super::words::resolution(&mut self.rng, stored(&answer));
                let _ = self.engine.resolve(identity, fence, &resolution).await;
                forget();
            }
            _ if self.rng.random_bool(0.3) => {
                let store: Arc<dyn StoreAdmin> = Arc::new(self.recorder.clone());
                forget();
                let _ = self.engine.reset(&store, identity, fence).await;
                forget();
            }
            _ => {}
        }
    }
}
