//! Settling and renewing: fenced inside the server, built from the memo that the lease carries.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use semel_core::record::Packed;
use semel_core::store::StoreResult;
use semel_core::{
    Grant, Record, Renewed, Settled, Settlement, StoreErrorKind, Timestamp, protocol,
};

use super::error::{overtaken, unexpected};
use super::script::{DONE, MARK, get, sized};
use super::{Inner, TRIES, millis};

impl Inner {
    pub(super) async fn settle(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        let key = self.key(&lease.identity);
        let now = self.time.now();
        let mut packed = Bytes::new();
        if let Some((written, life)) = from_memo(lease, settlement, now) {
            let reply = self.write_settlement(lease, &key, &lease.memo, &written, life);
            match reply.await? {
                Value::Nil => return Ok(Settled::Lost),
                Value::BulkString(found) => packed = found.into(),
                _ => return Ok(Settled::Done),
            }
        }
        for _ in 0..TRIES {
            let Some(record) = self.own_record(lease, &key, &mut packed).await? else {
                return Ok(Settled::Lost);
            };
            // The server knows whether the record is live (P23), and a memo doesn't know of renewals.
            let now = now.max(record.written_at);
            let record = Record {
                written_at: now,
                ..record
            };
            let decision =
                protocol::settle(Some(&record), lease.fence, lease.token, settlement, now);
            let Some(write) = decision.write else {
                // Done already (P18), and known to have been done as far as asked.
                if decision.answer == Settled::Done && !self.confirm(&key, &packed).await? {
                    packed = Bytes::new();
                    continue;
                }
                return Ok(decision.answer);
            };
            let (written, life) = (write.encode(), millis(write.retention));
            let reply = self.write_settlement(lease, &key, &packed, &written, life);
            match reply.await? {
                Value::Nil => return Ok(Settled::Lost),
                Value::BulkString(found) => packed = found.into(),
                _ => return Ok(decision.answer),
            }
        }
        Err(overtaken())
    }

    /// What the lease's own record says: as packed in the memo, or by reading it.
    async fn own_record(
        &self,
        lease: &Grant,
        key: &[u8],
        packed: &mut Bytes,
    ) -> StoreResult<Option<Record>> {
        let known = Record::decode_for(&lease.identity, packed).ok();
        let is_fresh = *packed != lease.memo;
        if let Some(record) =
            known.filter(|known| is_fresh || known.is_owned_by(lease.fence, lease.token))
        {
            return Ok(Some(record));
        }
        match self.link.query(key, &get(key)).await? {
            Value::Nil => Ok(None),
            Value::BulkString(found) => {
                *packed = found.into();
                Ok(Some(Record::decode_for(&lease.identity, packed)?))
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
        // Who waits is told by the script.
        if self.watch.has_ifeq() && !old.is_empty() && !old.ends_with(MARK) {
            let mut set = sized("SET", 7, key.len() + packed.len() + old.len());
            set.arg(key).arg(packed).arg("IFEQ").arg(old);
            set.arg("PX").arg(life);
            match self.link.query(key, &set).await {
                // A full server refuses every `SET`; the script is let through (P26).
                Err(full) if full.kind == StoreErrorKind::Full => {}
                // An older server may have taken the place of the one that has `IFEQ`; every server has the script.
                Err(refused) if refused.kind == StoreErrorKind::Rejected => self.watch.lacks_ifeq(),
                Err(error) => return Err(error),
                // Another header, or a mark: the script looks more closely.
                Ok(Value::Nil) => {}
                Ok(_) => return Ok(DONE),
            }
        }
        let (owner, life) = (owner(lease), life.to_string());
        let arguments = [&owner[..], packed, life.as_bytes()];
        self.link.run(&self.scripts.settle, key, &arguments).await
    }

    pub(super) async fn renew(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> StoreResult<Renewed> {
        let key = self.key(&lease.identity);
        let mut packed = lease.memo.clone();
        let Some(record) = self.own_record(lease, &key, &mut packed).await? else {
            return Ok(Renewed::Lost);
        };
        let now = self.time.now().max(record.written_at);
        let Some(checkpoint) = checkpoint else {
            let (owner, life) = (owner(lease), millis(record.retention).to_string());
            let written = now.as_micros().to_le_bytes();
            let arguments = [&owner[..], &written, life.as_bytes()];
            let reply = self.link.run(&self.scripts.renew, &key, &arguments).await?;
            if let Value::BulkString(found) = &reply {
                // Whose it is doesn't matter any more, but it has to be one of ours.
                Record::decode_for(&lease.identity, &found.clone().into())?;
            }
            return Ok(if reply == DONE {
                Renewed::Held
            } else {
                Renewed::Lost
            });
        };
        for _ in 0..TRIES {
            let Some((record, packed, now)) = self.look(&lease.identity, &key).await? else {
                return Ok(Renewed::Lost);
            };
            let (fence, token) = (lease.fence, lease.token);
            let decision = protocol::renew(Some(&record), fence, token, Some(checkpoint), now);
            let Some(mut write) = decision.write else {
                return Ok(decision.answer);
            };
            // As in the script: whoever saw the header before may have seen the lease lapsed (I5).
            let later = record.written_at.plus(Duration::from_micros(1));
            write.written_at = write.written_at.max(later);
            if self.swap(&key, &packed, &write).await?.is_some() {
                return Ok(decision.answer);
            }
        }
        Err(overtaken())
    }
}

/// What the settlement makes of the record that the lease carries along, packed, and how long that lives. A doubt
/// keeps the checkpoint, which the memo doesn't know of.
fn from_memo(lease: &Grant, settlement: &Settlement, now: Timestamp) -> Option<(Vec<u8>, u64)> {
    if matches!(settlement, Settlement::Doubt) {
        return None;
    }
    let (identity, memo) = (&lease.identity, &lease.memo);
    let memo = Packed::running(memo, identity, lease.fence, lease.token)?;
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
