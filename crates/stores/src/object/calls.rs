//! Claiming, settling, renewing, resolving: each says what is known and what to decide; see `change`.

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{
    Busy, Claim, Claimed, Fence, Grant, Identity, Record, Renewed, Resolution, Resolved, Settled,
    Settlement, protocol,
};

use super::change::{Changed, Version};
use super::{Inner, Place, is_deleted, memo, time};
use crate::cas::{Snapshot, Start};

impl Inner {
    /// One conditional creation where the key is new; a look where the asker thinks that it isn't.
    pub(super) async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        let start = match ask.retry {
            true => Start::Read { write_sent: false },
            false => Start::Remembered(Snapshot::absent(self.link.time.now())),
        };
        let decide = |found: Option<&Record>, now| protocol::claim(found, ask, now);
        let Some(Changed { answer, seen, memo }) =
            self.try_change(&ask.identity, start, decide).await?
        else {
            return Ok(protocol::overtaken());
        };
        self.keep_canary(ask, &answer, &seen).await;
        let now = self.link.time.now();
        Ok(match (answer, seen.found) {
            (Claimed::Won(grant), _) => Claimed::Won(Grant { memo, ..grant }),
            (Claimed::Busy(busy), Some((record, version))) => Claimed::Busy(Busy {
                retry_after: time::time_left(&record, version.noted, now, self.margin),
                ..busy
            }),
            (answer, _) => answer,
        })
    }

    pub(super) async fn settle(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        let (fence, token) = (lease.fence, lease.token);
        let decide =
            |found: Option<&Record>, now| protocol::settle(found, fence, token, settlement, now);
        let start = self.remembered(lease);
        let changed = self.change(&lease.identity, start, decide).await?;
        self.renewed.remove(&place(lease));
        Ok(changed.answer)
    }

    pub(super) async fn renew(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> StoreResult<Renewed> {
        let (fence, token) = (lease.fence, lease.token);
        let decide =
            |found: Option<&Record>, now| protocol::renew(found, fence, token, checkpoint, now);
        let start = self.remembered(lease);
        let changed = self.change(&lease.identity, start, decide).await?;
        match changed.answer {
            Renewed::Held => self.renewed.insert(place(lease), changed.memo),
            Renewed::Lost => drop(self.renewed.remove(&place(lease))),
        }
        Ok(changed.answer)
    }

    pub(super) async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> StoreResult<Resolved> {
        let decide = |found: Option<&Record>, now| {
            // What a deletion leaves has the fence alone, and would pass for a released record.
            let found = found.filter(|record| !is_deleted(record));
            protocol::resolve(found, fence, resolution, now)
        };
        let start = Start::Read { write_sent: false };
        let changed = self.change(identity, start, decide).await?;
        Ok(changed.answer)
    }

    pub(super) async fn read(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let Snapshot { found, now } = self.look(identity).await?;
        let live = |record: &Record| !record.is_expired(now) && !is_deleted(record);
        Ok(found.map(|(record, _)| record).filter(live))
    }

    /// The record as the lease's own claim wrote it, or its last renewal by this process. Where that isn't there any
    /// more the first write fails, and then what is there is looked at.
    fn remembered(&self, lease: &Grant) -> Start<Version> {
        let memo = self.renewed.get(&place(lease));
        let memo = memo.unwrap_or_else(|| lease.memo.clone());
        let seen = memo::read(&memo).and_then(|(update, packed)| {
            let record = Record::decode_for(&lease.identity, &packed).ok()?;
            let now = time::decide_at(&record, None, self.link.time.now(), self.margin);
            let version = Version {
                update,
                packed,
                noted: None,
            };
            Some(Snapshot {
                found: Some((record, version)),
                now,
            })
        });
        seen.map_or(Start::Read { write_sent: false }, Start::Remembered)
    }
}

fn place(lease: &Grant) -> Place {
    (lease.identity.address(), lease.fence)
}
