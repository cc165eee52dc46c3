//! [`BrokenStore`]: packed records in a map, one lock, and one bug.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::identity::Address;
use semel_core::protocol::Decision;
use semel_core::store::{Capabilities, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{
    Answer, BoxFuture, Claim, Claimed, Clock, Fence, Grant, Identity, Record, RecordError, Renewed,
    Resolution, Resolved, Settled, Settlement, Store, StoreError, StoreResult, Timestamp,
};

use super::Bug;
use super::damage::damaged;
use super::settle;

/// A store that keeps every rule but the one that its bug breaks. Clones share the records.
///
/// Without a bug it is a sound store that packs every record into bytes and unpacks it again, so
/// the suite run against it covers the packed form too.
#[derive(Clone)]
pub struct BrokenStore {
    pub(super) shared: Arc<Shared>,
    /// Whether this handle stands for a second process.
    pub(super) elsewhere: bool,
}

pub(super) struct Shared {
    pub(super) bug: Option<Bug>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) capacity: Option<usize>,
    pub(super) kept: Mutex<StoreContents>,
    pub(super) hub: Hub,
}

#[derive(Default)]
pub(super) struct StoreContents {
    pub(super) records: BTreeMap<Address, Bytes>,
    /// What was removed, as expired records: their fences are still needed (P22).
    graves: BTreeMap<Address, Bytes>,
    /// Bookkeeping that only bugs need.
    pub(super) previous: BTreeMap<Address, Bytes>,
    pub(super) locks: BTreeSet<Address>,
    pub(super) replies: VecDeque<Claimed>,
    pub(super) lost: BTreeSet<Address>,
    watched: BTreeSet<Address>,
}

impl StoreContents {
    /// Removes a record, and remembers its fence.
    pub(super) fn bury(&mut self, address: &Address) {
        let Some(packed) = self.records.remove(address) else {
            return;
        };
        if let Ok(record) = Record::decode(&packed) {
            // Expired on any clock, also on one that is set back.
            let expired = Record {
                retention: Duration::ZERO,
                created_at: Timestamp::default(),
                written_at: Timestamp::default(),
                ..record
            };
            self.graves.insert(*address, expired.encode().into());
        }
    }
}

impl BrokenStore {
    /// An empty store with this bug, or with none.
    #[must_use]
    pub fn new(bug: Option<Bug>, clock: Arc<dyn Clock>) -> Self {
        Self::bounded(bug, clock, None)
    }

    /// Like [`BrokenStore::new`], for at most `capacity` records.
    #[must_use]
    pub fn bounded(bug: Option<Bug>, clock: Arc<dyn Clock>, capacity: Option<usize>) -> Self {
        let (kept, hub) = (Mutex::default(), Hub::new());
        let shared = Arc::new(Shared {
            bug,
            clock,
            capacity,
            kept,
            hub,
        });
        Self {
            shared,
            elsewhere: false,
        }
    }

    /// A handle to the same records for a second process.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            elsewhere: true,
            ..self.clone()
        }
    }

    /// Gives the stored record of `identity` a format version that nobody knows.
    pub fn spoil(&self, identity: &Identity) -> bool {
        let mut kept = self.shared.kept.lock();
        let Some(packed) = kept.records.get_mut(&identity.address()) else {
            return false;
        };
        let mut bytes = packed.to_vec();
        bytes[0] = u8::MAX;
        *packed = bytes.into();
        true
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.shared.bug == Some(bug)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    /// The record of `identity`, expired or not, or what is left of it.
    pub(super) fn load(
        &self,
        kept: &StoreContents,
        identity: &Identity,
    ) -> StoreResult<Option<Record>> {
        let address = identity.address();
        let Some(packed) = kept.records.get(&address) else {
            let grave = kept
                .graves
                .get(&address)
                .filter(|_| !self.has(Bug::FenceForgottenWithTheRecord));
            let record = grave.and_then(|packed| Record::decode_for(identity, packed).ok());
            return Ok(record);
        };
        match Record::decode_for(identity, packed) {
            Ok(record) => Ok(Some(record)),
            Err(RecordError::Foreign) if self.has(Bug::SealNotChecked) => {
                Ok(Record::decode(packed).ok())
            }
            Err(_) if self.has(Bug::UnreadableIsAbsent) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn save(
        &self,
        kept: &mut StoreContents,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<()> {
        let (address, new) = (
            identity.address(),
            !kept.records.contains_key(&identity.address()),
        );
        let capacity = self.shared.capacity.unwrap_or(usize::MAX);
        if new && kept.records.len() >= capacity && !self.has(Bug::FullStaysFull) {
            self.bury_expired(kept);
        }
        if kept.records.len() >= capacity && (new || self.has(Bug::FullRefusesSettlements)) {
            if !self.has(Bug::FullForgets) {
                return Err(StoreError::full());
            }
            kept.records.pop_first();
        }
        let packed = damaged(self.shared.bug, record).encode().into();
        if let Some(previous) = kept.records.insert(address, packed) {
            kept.previous.insert(address, previous);
        }
        Ok(())
    }

    fn bury_expired(&self, kept: &mut StoreContents) {
        let now = self.now();
        let expired = |packed: &Bytes| Record::decode(packed).is_ok_and(|r| r.is_expired(now));
        let gone = kept.records.iter().filter(|(_, packed)| expired(packed));
        for address in gone.map(|(address, _)| *address).collect::<Vec<_>>() {
            kept.bury(&address);
        }
    }

    /// One atomic step: find, decide, write.
    pub(super) fn step<A>(
        &self,
        identity: &Identity,
        decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
    ) -> StoreResult<A> {
        let mut kept = self.shared.kept.lock();
        let found = self.load(&kept, identity)?;
        let decision = decide(found.as_ref(), self.now());
        if let Some(record) = &decision.write {
            self.save(&mut kept, identity, record)?;
        }
        Ok(decision.answer)
    }

    pub(super) fn wake(&self, identity: &Identity) {
        let address = identity.address();
        let mut kept = self.shared.kept.lock();
        kept.watched.remove(&address);
        let lost = kept.lost.remove(&address);
        drop(kept);
        let missed = self.has(Bug::WakesOnlyWhoLost) && !lost;
        if !missed && !self.has(Bug::NeverWakes) {
            self.shared.hub.wake(&address);
        }
    }
}

impl Store for BrokenStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            match self.shared.bug {
                Some(Bug::CheckThenAct) => self.claim_unguarded(claim).await,
                Some(Bug::DroppedClaimLeavesALock) => self.claim_locked(claim).await,
                Some(Bug::DroppedReplyIsGivenOn) => self.claim_piped(claim).await,
                _ => self.claim_once(claim),
            }
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        Box::pin(async move {
            self.step(&lease.identity, |found, now| {
                settle::renew(self.shared.bug, found, lease, checkpoint, now)
            })
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(async move {
            let settled = self.step(&lease.identity, |found, now| {
                settle::settle(self.shared.bug, found, lease, settlement, now)
            })?;
            self.wake(&lease.identity);
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
            let resolved = self.step(identity, |found, now| {
                settle::resolve(self.shared.bug, found, fence, resolution, now)
            })?;
            if !self.has(Bug::ResolveWakesNobody) {
                self.wake(identity);
            }
            Ok(resolved)
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(async move {
            let found = self.load(&self.shared.kept.lock(), identity)?;
            let shows =
                |record: &Record| self.has(Bug::ExpiredIsRead) || !record.is_expired(self.now());
            Ok(found.filter(shows))
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        let first = self.shared.kept.lock().watched.insert(identity.address());
        if self.has(Bug::WakesOnlyOne) && !first {
            return Wakeup::never();
        }
        self.shared.kept.lock().lost.remove(&identity.address());
        self.shared.hub.watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.shared.bug.map_or("packed", Bug::name))
            .with_durable(false)
            .with_shared(false)
            .with_wake(Wake::Exact)
            .with_lists_once(true)
            .with_max_answer_bytes(Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES)
    }
}

impl std::fmt::Debug for BrokenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BrokenStore({:?})", self.shared.bug)
    }
}
