//! A record as an object: read with its version, replaced by a conditional write.

use bytes::Bytes;
use object_store::UpdateVersion;
use semel_core::protocol::Decision;
use semel_core::store::StoreResult;
use semel_core::{Certainty, Identity, Record, Restored, Timestamp, protocol};

use super::{Inner, memo, time};
use crate::cas::{self, Cell, Snapshot, Start, Swap, overtaken};

/// An object as it was read or remembered.
pub(super) struct Version {
    pub(super) update: UpdateVersion,
    pub(super) packed: Bytes,
    /// When the server says that it was written; a remembered one doesn't know.
    pub(super) noted: Option<Timestamp>,
}

pub(super) type Seen = Snapshot<Version>;

/// What was decided, the record that it was decided on, and what a lease carries of the record that is there now.
pub(super) struct Changed<A> {
    pub(super) answer: A,
    pub(super) seen: Seen,
    pub(super) memo: Bytes,
}

impl Inner {
    /// The record, expired or not, and what time to decide by.
    pub(super) async fn look(&self, identity: &Identity) -> StoreResult<Seen> {
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
    ) -> StoreResult<Changed<A>> {
        let changed = self.try_change(identity, start, decide).await?;
        changed.ok_or_else(overtaken)
    }

    /// The same; `None` where another write came first every time.
    pub(super) async fn try_change<A>(
        &self,
        identity: &Identity,
        start: Start<Version>,
        decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
    ) -> StoreResult<Option<Changed<A>>> {
        let place = Place {
            inner: self,
            identity,
            is_dated_now: true,
        };
        let change = cas::drive(&place, start, decide).await?;
        Ok(change.map(|change| {
            let written = change.written.as_ref();
            let read = change.seen.version();
            let memo = written
                .map(|(version, packed)| memo::write(version, packed))
                .or_else(|| read.map(|read| memo::write(&read.update, &read.packed)));
            Changed {
                answer: change.answer,
                memo: memo.unwrap_or_default(),
                seen: change.seen,
            }
        }))
    }

    /// A record from another store (P43). It is written as it is: that the server notes another time says nothing about it,
    /// and the packed record says so.
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        let place = Place {
            inner: self,
            identity,
            is_dated_now: false,
        };
        let decide = |found: Option<&Record>, now| protocol::restore(found, record, now);
        let start = Start::Read { write_sent: false };
        let change = cas::drive(&place, start, decide).await?;
        change.map(|change| change.answer).ok_or_else(overtaken)
    }
}

/// The object of one record.
struct Place<'a> {
    inner: &'a Inner,
    identity: &'a Identity,
    /// Whether a record is written with the time of the write.
    is_dated_now: bool,
}

impl Cell for Place<'_> {
    type Version = Version;
    type Written = (UpdateVersion, Bytes);

    /// For less time than the engine gives a call.
    const ATTEMPTS: u32 = 8;

    async fn read(&self) -> StoreResult<Seen> {
        self.inner.look(self.identity).await
    }

    async fn swap(&self, seen: &Seen, new: Record) -> StoreResult<Swap<Self>> {
        let link = &self.inner.link;
        let packed = if self.is_dated_now {
            // Decided by a time that may have been held back; written now.
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
