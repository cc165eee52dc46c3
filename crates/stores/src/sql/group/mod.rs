//! Group commit: claims and settlements of several callers in one statement each, and so in one
//! commit.
//!
//! A call that meets no other runs by itself, on its caller's task. Others wait in a queue, which
//! one task empties, a batch at a time. No batch waits for a call that runs by itself. A call whose
//! batch failed, or left it out, is made again by its caller alone, so that no caller gets
//! another's error.
//!
//! Under load a statement, its round trip and its commit cost more than the row that it writes.

mod lane;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Answer, AnswerBody, Claim, Fence, Grant, Settlement};

pub(crate) use lane::Waiting;
use lane::{Emptier, Lane, Shareable, Shared};

use super::records::InsertOutcome;

/// The largest answer of a settlement that shares a statement.
const LARGEST_BODY: usize = 16 * 1024;

/// How many lanes there are. Keys of different lanes never share a statement. PostgreSQL has so
/// many partitions.
pub(crate) const LANES: usize = 4;

/// The calls that wait for a batch.
pub(crate) struct Groups {
    claims: [Arc<Lane<Claim, InsertOutcome>>; LANES],
    settlements: [Arc<Lane<Ending, bool>>; LANES],
}

/// A settlement and its lease.
pub(crate) struct Ending {
    pub(crate) lease: Grant,
    pub(crate) settlement: Settlement,
}

/// Claims that wait for their batch.
pub(crate) type Claims = [Waiting<Claim, InsertOutcome>];
/// Settlements that wait for their batch.
pub(crate) type Endings = [Waiting<Ending, bool>];

/// The first runs that a batch inserted: the fences, by address and token.
pub(crate) type Inserted = HashMap<(Address, u128), Fence>;
/// The records that a batch settled, and whether somebody waits for each.
pub(crate) type Settled = HashMap<Address, bool>;

/// A store whose calls share statements.
pub(crate) trait Grouped: Send + Sync + Sized + 'static {
    /// The calls that wait; `None` if each runs by itself.
    fn groups(&self) -> Option<&Groups>;

    /// A reference to itself, for tasks.
    fn strong(&self) -> Option<Arc<Self>>;

    /// Inserts the records of first runs, each if there is none and nobody else has the key in
    /// hand.
    fn insert_all(
        &self,
        lane: usize,
        claims: &Claims,
    ) -> impl Future<Output = StoreResult<Inserted>> + Send;

    /// Writes settlements, each if the lease is the owner's and the record is open. May leave some
    /// out.
    fn settle_all(
        &self,
        lane: usize,
        endings: &Endings,
    ) -> impl Future<Output = StoreResult<Settled>> + Send;

    /// Wakes those who wait for a settled record.
    fn wake(&self, address: Address);
}

impl Shareable for Claim {
    fn address(&self) -> Address {
        self.identity.address()
    }
}

impl Ending {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.settlement.answer().map(|answer| &**answer)
    }
}

impl Shareable for Ending {
    fn address(&self) -> Address {
        self.lease.identity.address()
    }
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self {
            claims: std::array::from_fn(|_| Arc::new(Lane::new())),
            settlements: std::array::from_fn(|_| Arc::new(Lane::new())),
        }
    }
}

/// The lane of a key.
pub(crate) fn lane_of(address: &Address) -> usize {
    usize::from(address[0]) * LANES / 256
}

/// Inserts the record of a first run: with `alone`, or together with other callers'.
pub(crate) async fn insert<S: Grouped, F>(
    store: &S,
    ask: &Claim,
    alone: impl FnOnce() -> F,
) -> StoreResult<InsertOutcome>
where
    F: Future<Output = StoreResult<InsertOutcome>>,
{
    let Some(groups) = store.groups() else {
        return alone().await;
    };
    let lane = lane_of(&ask.identity.address());
    let empty = |emptier: Emptier<_, _>| {
        spawn_with(store, async move |store: Arc<S>| {
            let run = |batch| insert_batch(&*store, lane, batch);
            emptier.run(run).await;
        });
    };
    groups.claims[lane].call(|| ask.clone(), alone, empty).await
}

/// Writes a settlement: with `alone`, or together with other callers'.
pub(crate) async fn settle<S: Grouped, F>(
    store: &S,
    lease: &Grant,
    settlement: &Settlement,
    alone: impl FnOnce() -> F,
) -> StoreResult<bool>
where
    F: Future<Output = StoreResult<bool>>,
{
    let Some(groups) = store.groups().filter(|_| is_small(settlement)) else {
        return alone().await;
    };
    let lane = lane_of(&lease.identity.address());
    let empty = |emptier: Emptier<_, _>| {
        spawn_with(store, async move |store: Arc<S>| {
            let run = |batch| settle_batch(&*store, lane, batch);
            emptier.run(run).await;
        });
    };
    let ending = || Ending {
        lease: lease.clone(),
        settlement: settlement.clone(),
    };
    groups.settlements[lane].call(ending, alone, empty).await
}

fn is_small(settlement: &Settlement) -> bool {
    match settlement.answer().map(|answer| &answer.body) {
        Some(AnswerBody::Kept(body)) => body.len() <= LARGEST_BODY,
        _ => true,
    }
}

/// A task of its own, so that a caller that leaves takes no other caller's statement with it.
fn spawn_with<S: Grouped, F>(store: &S, task: impl FnOnce(Arc<S>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    if let Some(store) = store.strong() {
        tokio::spawn(task(store));
    }
}

async fn insert_batch<S: Grouped>(
    store: &S,
    lane: usize,
    batch: Vec<Waiting<Claim, InsertOutcome>>,
) {
    match store.insert_all(lane, &batch).await {
        Ok(inserted) => {
            for waiting in batch {
                let ask = &waiting.call;
                let fence = inserted.get(&(ask.identity.address(), ask.token.0));
                let lost = InsertOutcome::Lost;
                let outcome = fence.map_or(lost, |fence| InsertOutcome::Done(*fence));
                waiting.answer(Shared::Done(outcome));
            }
        }
        Err(error) => lane::leave_alone(batch, &error),
    }
}

async fn settle_batch<S: Grouped>(store: &S, lane: usize, batch: Vec<Waiting<Ending, bool>>) {
    match store.settle_all(lane, &batch).await {
        Ok(settled) => {
            for waiting in batch {
                let address = waiting.call.address();
                let Some(is_awaited) = settled.get(&address) else {
                    // Another owner's, settled already, or in the hands of an open transaction.
                    waiting.answer(Shared::Alone {
                        is_uncertain: false,
                    });
                    continue;
                };
                if *is_awaited {
                    store.wake(address);
                }
                waiting.answer(Shared::Done(true));
            }
        }
        Err(error) => lane::leave_alone(batch, &error),
    }
}
