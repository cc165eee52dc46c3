//! [`LeaseTable`]: the leases that are held now, and when each is due for its first renewal.
//!
//! A lease takes a slot when its effect starts and gives it back when the effect ends: one lock of
//! one shard each time, and nothing is left behind. The watcher scans all slots, a few at a time
//! under each lock.
//!
//! Written here because the scan goes by position over slots that are taken and given back
//! meanwhile, and because an empty shard forgets its slots.

use std::sync::Arc;

use super::lease::HeldLease;
use crate::clock::Tick;
use crate::sync::Mutex;

const SHARDS: usize = 16;

/// The most slots that are looked at under one lock.
pub(super) const BATCH: usize = 128;

/// The time of a lease that needs no first renewal, because its renewals have begun. In
/// microseconds on this process's monotonic clock, as all times of this module.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Default)]
pub(super) struct LeaseTable {
    shards: [Mutex<Slots>; SHARDS],
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

struct Slot {
    due: u64,
    held: Option<Arc<HeldLease>>,
}

/// What one look under a lock found.
pub(super) struct Batch {
    /// Leases that are due, with the position of each.
    pub(super) due: Vec<(usize, Arc<HeldLease>)>,
    /// When the first of the others is.
    pub(super) next: u64,
    /// Whether the shard has more slots.
    pub(super) more: bool,
}

impl LeaseTable {
    /// Takes a slot for a lease that is due at `due`, and returns its position.
    pub(super) fn insert(&self, held: &Arc<HeldLease>, due: u64) -> usize {
        let slot = Slot {
            due,
            held: Some(Arc::clone(held)),
        };
        let mut shard = self.shard(held).lock();
        if let Some(at) = shard.free.pop() {
            shard.slots[at] = slot;
            return at;
        }
        shard.slots.push(slot);
        shard.slots.len() - 1
    }

    /// Gives a slot back. The caller drops the lease that was in it, without a lock: the last
    /// reference may drop an effect's state.
    pub(super) fn remove(&self, held: &HeldLease, at: usize) -> Option<Arc<HeldLease>> {
        let mut shard = self.shard(held).lock();
        let removed = shard.slots.get_mut(at)?.held.take();
        shard.free.push(at);
        if shard.free.len() == shard.slots.len() {
            shard.slots.clear();
            shard.free.clear();
        }
        removed
    }

    /// Makes a lease due at once, if it is still held.
    pub(super) fn make_due(&self, held: &Arc<HeldLease>, at: usize) {
        let mut shard = self.shard(held).lock();
        if let Some(slot) = shard.slots.get_mut(at)
            && slot.held.as_ref().is_some_and(|it| Arc::ptr_eq(it, held))
        {
            slot.due = 0;
        }
    }

    /// Takes the leases that are due by `now` out of one batch of slots. They stay in the table, as
    /// ones whose renewals have begun.
    pub(super) fn take_due(&self, shard: usize, from: usize, now: u64) -> Batch {
        let (mut due, mut next) = (Vec::new(), NEVER);
        let mut shard = self.shards[shard].lock();
        let end = shard.slots.len().min(from.saturating_add(BATCH));
        let batch = shard.slots.get_mut(from..end).unwrap_or_default();
        for (at, slot) in batch.iter_mut().enumerate() {
            match &slot.held {
                Some(held) if slot.due <= now => {
                    due.push((from + at, Arc::clone(held)));
                    slot.due = NEVER;
                }
                Some(_) => next = next.min(slot.due),
                None => {}
            }
        }
        let more = end < shard.slots.len();
        Batch { due, next, more }
    }

    /// When the oldest lease was claimed.
    pub(super) fn oldest(&self) -> Option<Tick> {
        let mut oldest = None;
        for shard in &self.shards {
            let (mut from, mut more) = (0_usize, true);
            while more {
                let shard = shard.lock();
                let end = shard.slots.len().min(from.saturating_add(BATCH));
                let batch = shard.slots.get(from..end).unwrap_or_default();
                let held = batch.iter().filter_map(|slot| slot.held.as_ref());
                oldest = held.map(|held| held.began()).chain(oldest).min();
                more = end < shard.slots.len();
                from = end;
            }
        }
        oldest
    }

    pub(super) const fn shards() -> std::ops::Range<usize> {
        0..SHARDS
    }

    fn shard(&self, held: &HeldLease) -> &Mutex<Slots> {
        // The identity is a digest: any of its bytes spreads leases evenly.
        &self.shards[usize::from(held.subject.identity.as_bytes()[31]) % SHARDS]
    }

    /// How many slots there are, used or not.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().slots.len()).sum()
    }
}
