//! One shard: a table from address to record, and a lower bound on when the next record expires.

use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashTable;

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
    fn belongs_to(&self, identity: &Identity) -> bool {
        self.address == identity.address() && self.record.belongs_to(identity)
    }
}

/// Keeps the fence of a removed record until the clock has passed it. The kept entry counts as
/// expired, so only the rule on fences (P22) sees it.
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

/// The result of a look-up.
pub(super) struct Found<'a> {
    pub(super) record: Option<&'a Record>,
    /// Whether the record takes up room in the table; one that was just removed doesn't.
    pub(super) is_present: bool,
}

/// The result of a write.
pub(super) enum PutOutcome {
    Done,
    Full,
}

impl Shard {
    /// The record of `identity`, which may be expired or just removed. An error if the slot holds
    /// another key's record (P24).
    pub(super) fn get(&self, hash: u64, identity: &Identity) -> Result<Found<'_>, RecordError> {
        let address = identity.address();
        match self.table.find(hash, |entry| entry.address == address) {
            Some(entry) if !entry.record.belongs_to(identity) => Err(RecordError::Foreign),
            Some(entry) => Ok(Found {
                record: Some(&entry.record),
                is_present: true,
            }),
            None => Ok(Found {
                record: self
                    .ahead
                    .iter()
                    .find(|e| e.belongs_to(identity))
                    .map(|entry| &*entry.record),
                is_present: false,
            }),
        }
    }

    /// The record of `identity`, which may be expired, to change it. It may not expire sooner
    /// afterwards. A record that was just removed is none: it counts as expired. An error as with
    /// [`Shard::get`].
    pub(super) fn get_mut(
        &mut self,
        hash: u64,
        identity: &Identity,
    ) -> Result<Option<&mut Record>, RecordError> {
        let address = identity.address();
        match self.table.find_mut(hash, |entry| entry.address == address) {
            Some(entry) if !entry.record.belongs_to(identity) => Err(RecordError::Foreign),
            found => Ok(found.map(|entry| &mut *entry.record)),
        }
    }

    /// Writes `record`; a key that is new here first asks `reserve` for room. `is_present` is as
    /// [`Shard::get`] said under the same lock.
    pub(super) fn put(
        &mut self,
        hash: u64,
        identity: &Identity,
        record: Record,
        is_present: bool,
        rehash: impl Fn(&Address) -> u64,
        reserve: impl FnOnce() -> bool,
    ) -> PutOutcome {
        let address = identity.address();
        let expiry = record.expires_at();
        let present = match is_present {
            true => self.table.find_mut(hash, |entry| entry.address == address),
            false => None,
        };
        match present {
            Some(entry) => *entry.record = record,
            None if reserve() => {
                let record = Box::new(record);
                let entry = Entry { address, record };
                self.table
                    .insert_unique(hash, entry, |entry| rehash(&entry.address));
            }
            None => return PutOutcome::Full,
        }
        self.earliest_expiry = Some(
            self.earliest_expiry
                .map_or(expiry, |known| known.min(expiry)),
        );
        PutOutcome::Done
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
            .find_entry(hash, |entry| entry.belongs_to(identity))
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
