//! Claim, settle, renew and resolve: each gives the loop in `change` its start and its decision.

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{
    Busy, Claim, Claimed, Fence, Grant, Identity, Record, Renewed, Resolution, Resolved, Settled,
    Settlement, protocol,
};

use super::change::{ChangeOutcome, Version};
use super::{Inner, LeaseKey, is_deleted, memo, time};
use crate::cas::{Snapshot, Start};

impl Inner {
    /// Claims by one conditional creation. A retry reads first.
    pub(super) async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        let start = match ask.retry {
            true => Start::Read { write_sent: false },
            false => Start::Remembered(Snapshot::absent(self.link.time.now())),
        };
        let Some(ChangeOutcome { answer, seen, memo }) = self.try_claim(ask, start).await? else {
            return Ok(protocol::overtaken());
        };
        self.keep_canary(ask, &answer, &seen).await;
        let now = self.link.time.now();
        Ok(match (answer, seen.found) {
            (Claimed::Won(grant), _) => Claimed::Won(grant.with_memo(memo)),
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
        self.renewed.remove(&lease_key(lease));
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
            Renewed::Held => self.renewed.insert(lease_key(lease), changed.memo),
            Renewed::Lost => drop(self.renewed.remove(&lease_key(lease))),
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
            // A tombstone only keeps the fence, and would look like a released record.
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

    /// The record as the lease's claim, or its last renewal by this process, wrote it. If the
    /// object has changed since, the first write fails, and the loop reads it.
    fn remembered(&self, lease: &Grant) -> Start<Version> {
        let memo = self.renewed.get(&lease_key(lease));
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

fn lease_key(lease: &Grant) -> LeaseKey {
    (lease.identity.address(), lease.fence)
}
