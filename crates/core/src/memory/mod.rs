//! [`MemoryStore`]: the reference store, in this process's memory. Sharded, bounded, exact.
//!
//! Each call locks one shard, passes the record found to [`crate::protocol`], and writes the
//! result. Its clock is this process's, so no other process shares its records. When it is full it
//! refuses new keys rather than evict a live record (P26).

mod admin;
mod shard;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher as _;

use crate::claim::{Claim, Claimed, Grant, Renewed, Resolution, Resolved, Settled, Settlement};
use crate::clock::{Clock, Tick, Timestamp};
use crate::env::BoxFuture;
use crate::error::StoreError;
use crate::identity::{Address, Identity, address_bits};
use crate::protocol;
use crate::record::{Answer, Fence, Record, RecordError};
use crate::store::{Capabilities, Store, StoreResult, Wake};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::wake::{Hub, Wakeup};
use shard::{PutOutcome, Shard};

/// Settings of a [`MemoryStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The most records kept, including expired ones that were not removed yet. Default 200,000.
    pub capacity: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { capacity: 200_000 }
    }
}

impl MemoryConfig {
    /// Sets [`capacity`](Self::capacity).
    #[must_use]
    pub const fn with_capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }
}

/// Records in memory. Cheap to clone; clones share the records.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    present: AtomicUsize,
    capacity: usize,
    clock: Arc<dyn Clock>,
    // The store's clock: wall time when it was made, carried on by the monotonic clock, so that
    // setting the machine's clock back never un-expires or un-lapses anything.
    epoch: Timestamp,
    origin: Tick,
    hub: Hub,
}

impl MemoryStore {
    /// An empty store that takes its time from `clock`.
    #[must_use]
    pub fn new(config: MemoryConfig, clock: Arc<dyn Clock>) -> Self {
        // Shards of about 8,192 records: a sweep holds one lock for that many, not for all.
        let shards = (config.capacity / 8192).next_power_of_two().clamp(16, 4096);
        let inner = Inner {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            hasher: DefaultHashBuilder::default(),
            present: AtomicUsize::new(0),
            capacity: config.capacity,
            epoch: clock.wall(),
            origin: clock.now(),
            clock,
            hub: Hub::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The number of records, including expired ones that were not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.present.load(Ordering::SeqCst)
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn now(&self) -> Timestamp {
        self.epoch.plus(self.clock.now().since(self.origin))
    }

    fn hash(&self, identity: &Identity) -> u64 {
        self.hash_address(&identity.address())
    }

    fn hash_address(&self, address: &Address) -> u64 {
        self.hasher.hash_one(address_bits(address))
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table inside a shard uses the lowest and the highest bits; take others.
        let index = usize::try_from(hash >> 32 & 0xffff).unwrap_or(0) & (self.shards.len() - 1);
        &self.shards[index]
    }

    /// One atomic step: find, decide, write.
    fn step<A>(
        &self,
        identity: &Identity,
        decide: impl Fn(Option<&Record>, Timestamp) -> protocol::Decision<A>,
    ) -> StoreResult<A> {
        self.step_if(identity, |_, _| Ok(()), decide)
    }

    /// The same, unless `check` refuses the record found.
    fn step_if<A>(
        &self,
        identity: &Identity,
        check: impl Fn(Option<&Record>, Timestamp) -> Result<(), RecordError>,
        decide: impl Fn(Option<&Record>, Timestamp) -> protocol::Decision<A>,
    ) -> StoreResult<A> {
        let hash = self.hash(identity);
        let mut made_room = false;
        loop {
            let mut shard = self.shard(hash).lock();
            let now = self.now();
            let found = shard.get(hash, identity)?;
            check(found.record, now)?;
            let decision = decide(found.record, now);
            let Some(record) = decision.write else {
                return Ok(decision.answer);
            };
            let is_present = found.is_present;
            match shard.put(
                hash,
                identity,
                record,
                is_present,
                |address| self.hash_address(address),
                || self.reserve(),
            ) {
                PutOutcome::Done => return Ok(decision.answer),
                PutOutcome::Full if made_room => return Err(StoreError::full()),
                // The lock is given up before other shards are swept: one lock at a time (L8).
                PutOutcome::Full => drop(shard),
            }
            self.make_room();
            made_room = true;
        }
    }

    /// The step of a settlement. It changes the record in place, because it makes no new one.
    fn settle(&self, lease: &Grant, settlement: &Settlement) -> StoreResult<Settled> {
        let hash = self.hash(&lease.identity);
        let mut shard = self.shard(hash).lock();
        let now = self.now();
        let found = shard.get_mut(hash, &lease.identity)?;
        let (fence, token) = (lease.fence, lease.token);
        Ok(protocol::settle_in_place(
            found, fence, token, settlement, now,
        ))
    }

    /// Counts one more record, unless the store is full.
    fn reserve(&self) -> bool {
        let add = |present| (present < self.capacity).then_some(present + 1);
        self.present
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
            .is_ok()
    }

    /// Removes the expired records of the first shard that has any.
    fn make_room(&self) {
        self.sweep(1);
    }

    /// Removes expired records, shard by shard, until at least `most` are gone or none is left.
    fn sweep(&self, most: usize) -> usize {
        let now = self.now();
        let mut removed = 0;
        for shard in &self.shards {
            if removed >= most {
                break;
            }
            let mut shard = shard.lock();
            let gone = shard.sweep(now);
            // Under the lock: whoever finds nothing left to sweep here also finds the room it made.
            self.present.fetch_sub(gone, Ordering::SeqCst);
            removed += gone;
        }
        removed
    }
}

impl Store for MemoryStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            let check = |found: Option<&Record>, now| protocol::check_keys(found, claim, now);
            let decide = |found: Option<&Record>, now| protocol::claim(found, claim, now);
            self.inner.step_if(&claim.identity, check, decide)
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        Box::pin(async move {
            self.inner.step(&lease.identity, |found, now| {
                protocol::renew(found, lease.fence, lease.token, checkpoint, now)
            })
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(async move {
            let settled = self.inner.settle(lease, settlement)?;
            self.inner.hub.wake(&lease.identity.address());
            Ok(settled)
        })
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        Box::pin(async move {
            let resolved = self.inner.step(identity, |found, now| {
                protocol::resolve(found, fence, resolution, now)
            })?;
            self.inner.hub.wake(&identity.address());
            Ok(resolved)
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(async move {
            let hash = self.inner.hash(identity);
            let shard = self.inner.shard(hash).lock();
            let now = self.inner.now();
            Ok(shard
                .get(hash, identity)?
                .record
                .filter(|record| !record.is_expired(now))
                .cloned())
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        self.inner.hub.watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "memory",
            durable: false,
            shared: false,
            wake: Wake::Exact,
            lists_once: true,
            max_answer_bytes: Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES,
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "MemoryStore({} of {} records)",
            self.len(),
            self.inner.capacity
        )
    }
}
