//! A record as an object: read with its version, replaced by a conditional write.

use bytes::Bytes;
use object_store::UpdateVersion;
use semel_core::protocol::Decision;
use semel_core::store::StoreResult;
use semel_core::{Certainty, Claim, Claimed, Identity, Record, Restored, Timestamp, protocol};

use super::{Inner, memo, time};
use crate::cas::{self, Cell, Snapshot, Start, Swap, overtaken};

/// An object as it was read or remembered.
pub(super) struct Version {
    pub(super) update: UpdateVersion,
    pub(super) packed: Bytes,
    /// When it was written, by the server's clock; `None` for a remembered one.
    pub(super) noted: Option<Timestamp>,
}

pub(super) type ObjectSnapshot = Snapshot<Version>;

/// The answer, the record that it was decided on, and the memo of the record that is stored now.
pub(super) struct ChangeOutcome<A> {
    pub(super) answer: A,
    pub(super) seen: ObjectSnapshot,
    pub(super) memo: Bytes,
}

impl Inner {
    /// Reads the record, expired or not, and the time to decide by.
    pub(super) async fn look(&self, identity: &Identity) -> StoreResult<ObjectSnapshot> {
        let Some(found) = self.link.get(&self.path_of(identity), None).await? else {
            return Ok(Snapshot::absent(self.link.time.now()));
        };
        let record = Record::decode_for(identity, &found.bytes)?;
        let noted = memo::is_dated_by_the_server(&found.bytes).then_some(found.noted);
        let now = time::decide_at(&record, noted, self.link.time.now(), self.margin);
        let version = Version {
            update: found.version,
            packed: found.bytes,
            noted,
        };
        Ok(Snapshot {
            found: Some((record, version)),
            now,
        })
    }

    pub(super) async fn change<A>(
        &self,
        identity: &Identity,
        start: Start<Version>,
        decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
    ) -> StoreResult<ChangeOutcome<A>> {
        let place = RecordCell::of(self, identity);
        let changed = place.change(start, decide).await?;
        changed.ok_or_else(overtaken)
    }

    /// As [`Self::change`], for a claim. `None` if another write came first every time.
    pub(super) async fn try_claim(
        &self,
        ask: &Claim,
        start: Start<Version>,
    ) -> StoreResult<Option<ChangeOutcome<Claimed>>> {
        let place = RecordCell {
            ask: Some(ask),
            ..RecordCell::of(self, &ask.identity)
        };
        let decide = |found: Option<&Record>, now| protocol::claim(found, ask, now);
        place.change(start, decide).await
    }

    /// Writes a record from another store unchanged (P43). Its packed form says that the server's
    /// time of the object doesn't apply to it.
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        let place = RecordCell {
            is_dated_now: false,
            ..RecordCell::of(self, identity)
        };
        let decide = |found: Option<&Record>, now| protocol::restore(found, record, now);
        let start = Start::Read { write_sent: false };
        let change = cas::drive(&place, start, decide).await?;
        change.map(|change| change.answer).ok_or_else(overtaken)
    }
}

/// The compare-and-swap cell of one record's object.
struct RecordCell<'a> {
    inner: &'a Inner,
    identity: &'a Identity,
    /// Whether a record is written with the time of the write.
    is_dated_now: bool,
    /// The claim, whose keys decide whether it may use the record (P46).
    ask: Option<&'a Claim>,
}

impl<'a> RecordCell<'a> {
    const fn of(inner: &'a Inner, identity: &'a Identity) -> Self {
        Self {
            inner,
            identity,
            is_dated_now: true,
            ask: None,
        }
    }

    async fn change<A>(
        &self,
        start: Start<Version>,
        decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
    ) -> StoreResult<Option<ChangeOutcome<A>>> {
        let change = cas::drive(self, start, decide).await?;
        Ok(change.map(|change| {
            let written = change.written.as_ref();
            let read = change.seen.version();
            let memo = written
                .map(|(version, packed)| memo::write(version, packed))
                .or_else(|| read.map(|read| memo::write(&read.update, &read.packed)));
            ChangeOutcome {
                answer: change.answer,
                memo: memo.unwrap_or_default(),
                seen: change.seen,
            }
        }))
    }
}

impl Cell for RecordCell<'_> {
    type Version = Version;
    type Written = (UpdateVersion, Bytes);

    /// All attempts together take less time than the engine's call limit.
    const ATTEMPTS: u32 = 8;

    async fn read(&self) -> StoreResult<ObjectSnapshot> {
        let seen = self.inner.look(self.identity).await?;
        if let Some(ask) = self.ask {
            protocol::check_keys(seen.record(), ask, seen.now)?;
        }
        Ok(seen)
    }

    async fn swap(&self, seen: &ObjectSnapshot, new: Record) -> StoreResult<Swap<Self>> {
        let link = &self.inner.link;
        let packed = if self.is_dated_now {
            // The time of the decision may lag behind; the record gets the current time.
            let last = seen.record().map(|record| record.written_at);
            let written_at = link.time.now().max(last.unwrap_or_default());
            memo::pack(&time::dated(new, written_at))
        } else {
            memo::pack_as_it_was(&new)
        };
        let path = self.inner.path_of(self.identity);
        let instead_of = seen.version().map(|version| &version.update);
        match link.put(&path, packed.clone(), instead_of).await {
            Ok(Some(version)) => Ok(Swap::Done((version, packed))),
            Ok(None) => Ok(Swap::Lost(None)),
            Err(error) if error.certainty == Certainty::Unknown => Ok(Swap::Uncertain(error)),
            Err(error) => Err(error),
        }
    }

    async fn back_off(&self, attempt: u32) {
        if attempt > 0 {
            self.inner.link.pause(attempt).await;
        }
    }
}
