//! Settling and renewing: fenced inside the server, built from the memo that the lease carries.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use semel_core::protocol::{self, Decision};
use semel_core::record::PackedRecord;
use semel_core::store::StoreResult;
use semel_core::{Grant, Record, Renewed, Settled, Settlement, StoreErrorKind, Timestamp};

use super::claim::BRIEF;
use super::error::unexpected;
use super::script::{DONE, MARK, get, sized};
use super::{ATTEMPTS, Inner, millis};
use crate::cas::{self, Cell, Snapshot, Start, Swap, overtaken};

impl Inner {
    pub(super) async fn settle(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        let key = self.key(&lease.identity);
        let now = self.time.now();
        let cell = SettleCell {
            inner: self,
            lease,
            settlement,
            key,
        };
        let mut start = Start::Read { write_sent: false };
        if let Some((written, life)) = from_memo(lease, settlement, now) {
            let reply = self.write_settlement(lease, &cell.key, &lease.memo, &written, life);
            match cell.judge(reply.await?)? {
                Swap::Lost(Some(seen)) => {
                    let write_sent = true;
                    start = Start::Current { seen, write_sent };
                }
                _ => return Ok(Settled::Done),
            }
        }
        let decide = |found: Option<&Record>, now| cell.decide(found, now);
        let change = cas::drive(&cell, start, decide).await?;
        change.map(|change| change.answer).ok_or_else(overtaken)
    }

    /// The lease's own record: from the memo, or by reading it.
    async fn own_record(&self, lease: &Grant, key: &[u8]) -> StoreResult<Option<Record>> {
        let known = Record::decode_for(&lease.identity, &lease.memo).ok();
        if let Some(record) = known.filter(|known| known.is_owned_by(lease.fence, lease.token)) {
            return Ok(Some(record));
        }
        match self.link.query(key, &get(key)).await? {
            Value::Nil => Ok(None),
            Value::BulkString(found) => {
                Ok(Some(Record::decode_for(&lease.identity, &found.into())?))
            }
            _ => Err(unexpected("GET")),
        }
    }

    async fn write_settlement(
        &self,
        lease: &Grant,
        key: &[u8],
        old: &[u8],
        packed: &[u8],
        life: u64,
    ) -> StoreResult<Value> {
        // The script also wakes waiters, and stamps brief records.
        let is_brief = u128::from(life) < BRIEF.as_millis();
        if self.watch.has_ifeq() && !is_brief && !old.is_empty() && !old.ends_with(MARK) {
            let mut set = sized("SET", 7, key.len() + packed.len() + old.len());
            set.arg(key).arg(packed).arg("IFEQ").arg(old);
            set.arg("PX").arg(life);
            match self.link.query(key, &set).await {
                // A full server rejects every `SET`, but runs the script (P26).
                Err(full) if full.kind == StoreErrorKind::Full => {}
                // An older server without `IFEQ` may have replaced the last one; every server runs
                // the script.
                Err(refused) if refused.kind == StoreErrorKind::Rejected => self.watch.lacks_ifeq(),
                Err(error) => return Err(error),
                // The header differs, or the record has waiters: the script decides.
                Ok(Value::Nil) => {}
                Ok(_) => return Ok(DONE),
            }
        }
        let (owner, life) = (owner(lease), life.to_string());
        let arguments = [&owner[..], packed, life.as_bytes(), b"brief"];
        let arguments = &arguments[..if is_brief { 4 } else { 3 }];
        self.link.run(&self.scripts.settle, key, arguments).await
    }

    pub(super) async fn renew(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> StoreResult<Renewed> {
        let key = self.key(&lease.identity);
        let Some(record) = self.own_record(lease, &key).await? else {
            return Ok(Renewed::Lost);
        };
        let now = self.time.now().max(record.written_at);
        let Some(checkpoint) = checkpoint else {
            let (owner, life) = (owner(lease), millis(record.retention).to_string());
            let written = now.as_micros().to_le_bytes();
            let is_brief = record.retention < BRIEF;
            let written = if is_brief { &[][..] } else { &written };
            let arguments = [&owner[..], written, life.as_bytes()];
            let reply = self.link.run(&self.scripts.renew, &key, &arguments).await?;
            if let Value::BulkString(found) = &reply {
                // The lease is lost in any case, but the bytes have to be a valid record.
                Record::decode_for(&lease.identity, &found.clone().into())?;
            }
            return Ok(if reply == DONE {
                Renewed::Held
            } else {
                Renewed::Lost
            });
        };
        let (fence, token) = (lease.fence, lease.token);
        let decide = |found: Option<&Record>, now| {
            let mut decision = protocol::renew(found, fence, token, Some(checkpoint), now);
            if let (Some(write), Some(old)) = (&mut decision.write, found) {
                // As in the script: a reader of the old header may have seen the lease lapsed (I5).
                let later = old.written_at.plus(Duration::from_micros(1));
                write.written_at = write.written_at.max(later);
            }
            decision
        };
        let start = Start::Read { write_sent: false };
        let change = cas::drive(&self.cell(&lease.identity), start, decide).await?;
        change.map(|change| change.answer).ok_or_else(overtaken)
    }
}

/// The compare-and-swap cell of a settlement.
struct SettleCell<'a> {
    inner: &'a Inner,
    lease: &'a Grant,
    settlement: &'a Settlement,
    key: Vec<u8>,
}

impl SettleCell<'_> {
    /// The server knows whether the record is live (P23), and a memo doesn't know of renewals: so
    /// the record counts as written just now.
    fn decide(&self, found: Option<&Record>, now: Timestamp) -> Decision<Settled> {
        let written_at = found.map_or(now, |record| now.max(record.written_at));
        let found = found.map(|record| Record {
            written_at,
            ..record.clone()
        });
        let (fence, token) = (self.lease.fence, self.lease.token);
        protocol::settle(found.as_ref(), fence, token, self.settlement, written_at)
    }

    /// What a write was answered with: nothing if there is no record, or the record that is there.
    fn judge(&self, reply: Value) -> StoreResult<Swap<Self>> {
        Ok(match reply {
            Value::Nil => Swap::Lost(Some(Snapshot::absent(self.inner.time.now()))),
            Value::BulkString(found) => Swap::Lost(Some(self.snapshot(found.into())?)),
            _ => Swap::Done(()),
        })
    }

    fn snapshot(&self, packed: Bytes) -> StoreResult<Snapshot<Bytes>> {
        let record = Record::decode_for(&self.lease.identity, &packed)?;
        Ok(Snapshot {
            found: Some((record, packed)),
            now: self.inner.time.now(),
        })
    }
}

impl Cell for SettleCell<'_> {
    type Version = Bytes;
    type Written = ();

    const ATTEMPTS: u32 = ATTEMPTS;

    async fn read(&self) -> StoreResult<Snapshot<Bytes>> {
        match self.inner.link.query(&self.key, &get(&self.key)).await? {
            Value::Nil => Ok(Snapshot::absent(self.inner.time.now())),
            Value::BulkString(found) => self.snapshot(found.into()),
            _ => Err(unexpected("GET")),
        }
    }

    async fn swap(&self, seen: &Snapshot<Bytes>, new: Record) -> StoreResult<Swap<Self>> {
        let old = seen.version().map_or(&[][..], |packed| packed);
        let (written, life) = (new.encode(), millis(new.retention));
        let inner = self.inner;
        let reply = inner.write_settlement(self.lease, &self.key, old, &written, life);
        self.judge(reply.await?)
    }

    /// Confirms that an earlier settlement (P18) has reached the store's durability level.
    async fn confirm(&self, seen: &Snapshot<Bytes>) -> StoreResult<bool> {
        let Some((record, packed)) = &seen.found else {
            return Ok(true);
        };
        let is_done = self.inner.link.is_confirming()
            && self.decide(Some(record), seen.now).answer == Settled::Done;
        Ok(!is_done || self.inner.confirm(&self.key, packed).await?)
    }
}

/// The settled record in packed form, made from the lease's memo, and its time to live. `None` for
/// a doubt, which keeps the checkpoint that the memo doesn't have.
fn from_memo(lease: &Grant, settlement: &Settlement, now: Timestamp) -> Option<(Vec<u8>, u64)> {
    if matches!(settlement, Settlement::Doubt) {
        return None;
    }
    let (identity, memo) = (&lease.identity, &lease.memo);
    let memo = PackedRecord::running(memo, identity, lease.fence, lease.token)?;
    let answer = settlement.answer().map(AsRef::as_ref);
    let written = memo.settled(settlement.state(), answer, now);
    Some((written, memo.retention_millis()))
}

/// Fence and token, as they stand in a packed record.
fn owner(lease: &Grant) -> [u8; 24] {
    let mut owner = [0; 24];
    owner[..8].copy_from_slice(&lease.fence.0.to_le_bytes());
    owner[8..].copy_from_slice(&lease.token.0.to_le_bytes());
    owner
}
