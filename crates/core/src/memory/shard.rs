//! One shard: a table from address to record, and a lower bound on when the next record expires.

use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;

use crate::clock::Timestamp;
use crate::identity::{Address, Identity};
use crate::record::{Record, RecordError};

#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    // No record here expires before this. Lets a full store skip shards that have nothing to give.
    earliest_expiry: Option<Timestamp>,
    // Removed while the clock had not yet passed their fence: the key's next fence has to be larger
    // all the same (P22). Nearly always empty.
    ahead: Vec<Entry>,
}

struct Entry {
    address: Address,
    record: Box<Record>,
}

impl Entry {
    fn is_of(&self, identity: &Identity) -> bool {
        self.address == identity.address() && self.record.is_of(identity)
    }
}

/// Keeps the fence of a record that is being removed until the clock has passed it. What is kept of
/// the record has expired, so that to every rule but P22 there is none.
fn remember(ahead: &mut Vec<Entry>, removed: &Entry, now: Timestamp) {
    let passed = |entry: &Entry| entry.record.fence.0 < now.as_micros();
    ahead.retain(|entry| entry.address != removed.address && !passed(entry));
    if !passed(removed) {
        let record = Record {
            retention: Duration::ZERO,
            checkpoint: Bytes::new(),
            answer: None,
            ..(*removed.record).clone()
        };
        ahead.push(Entry {
            address: removed.address,
            record: Box::new(record),
        });
    }
}

/// What became of a write.
pub(super) enum Put {
    Done,
    Full,
}

impl Shard {
    /// The record of `identity`, expired, removed just now or neither; an error where the slot holds
    /// another's (P24).
    pub(super) fn get(
        &self,
        hash: u64,
        identity: &Identity,
    ) -> Result<Option<&Record>, RecordError> {
        let address = identity.address();
        match self.table.find(hash, |entry| entry.address == address) {
            Some(entry) if !entry.record.is_of(identity) => Err(RecordError::Foreign),
            Some(entry) => Ok(Some(&entry.record)),
            None => Ok(self
                .ahead
                .iter()
                .find(|e| e.is_of(identity))
                .map(|entry| &*entry.record)),
        }
    }

    /// Writes `record`; a key that is new here first asks `reserve` for room.
    pub(super) fn put(
        &mut self,
        hash: u64,
        identity: &Identity,
        record: Record,
        rehash: impl Fn(&Address) -> u64,
        reserve: impl FnOnce() -> bool,
    ) -> Put {
        let address = identity.address();
        let expiry = record.expires_at();
        match self
            .table
            .entry(hash, |e| e.address == address, |e| rehash(&e.address))
        {
            Slot::Occupied(mut slot) => *slot.get_mut().record = record,
            Slot::Vacant(slot) if reserve() => {
                slot.insert(Entry {
                    address,
                    record: Box::new(record),
                });
            }
            Slot::Vacant(_) => return Put::Full,
        }
        self.earliest_expiry = Some(
            self.earliest_expiry
                .map_or(expiry, |known| known.min(expiry)),
        );
        Put::Done
    }

    /// Removes the record of `identity`; answers whether it was still live.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        identity: &Identity,
        now: Timestamp,
    ) -> Option<bool> {
        let slot = self
            .table
            .find_entry(hash, |entry| entry.is_of(identity))
            .ok()?;
        let (entry, _) = slot.remove();
        let was_live = !entry.record.is_expired(now);
        remember(&mut self.ahead, &entry, now);
        Some(was_live)
    }

    /// Removes expired records (P21); answers how many.
    pub(super) fn sweep(&mut self, now: Timestamp) -> usize {
        if self.earliest_expiry.is_none_or(|earliest| earliest > now) {
            return 0;
        }
        let Self { table, ahead, .. } = self;
        let removed = table.extract_if(|entry| entry.record.is_expired(now));
        let removed = removed.map(|entry| remember(ahead, &entry, now)).count();
        self.earliest_expiry = self
            .table
            .iter()
            .map(|entry| entry.record.expires_at())
            .min();
        removed
    }

    /// All records, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Identity, &Record)> {
        self.table.iter().map(|entry| {
            (
                Identity::from_halves(&entry.address, &entry.record.seal),
                &*entry.record,
            )
        })
    }
}
