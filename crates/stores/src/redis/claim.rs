//! Claiming: one plain command, and a second step only for what lost to a running or released record.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use semel_core::record::offset;
use semel_core::store::StoreResult;
use semel_core::{
    Claim, Claimed, Fence, Grant, Identity, Record, Restored, State, StoreError, StoreErrorKind,
    Timestamp, protocol,
};

use super::error::{overtaken, unexpected};
use super::script::{DONE, get, sized};
use super::{Inner, TRIES, is_deleted, millis};

/// A record that lives shorter may be gone before a claim arrives that was sent before it was written. The fence that
/// such a claim brings along would be smaller than the record's was: the server gives it one when it arrives (P22).
const BRIEF: Duration = Duration::from_secs(60);

impl Inner {
    pub(super) async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        self.watch.is_fit()?;
        let key = self.key(&ask.identity);
        for _ in 0..TRIES {
            if let Some(answer) = self.claim_once(ask, &key).await? {
                return Ok(answer);
            }
        }
        Ok(protocol::overtaken())
    }

    /// `None` where the record that it lost to was gone at the next look.
    async fn claim_once(&self, ask: &Claim, key: &[u8]) -> StoreResult<Option<Claimed>> {
        let now = self.time.now();
        if ask.retry
            && let Value::BulkString(found) = self.link.query(key, &get(key)).await?
        {
            return self.contend(ask, key, found.into(), now).await;
        }
        let decision = protocol::claim(None, ask, now);
        let (Claimed::Won(grant), Some(record)) = (decision.answer, decision.write) else {
            return Err(unexpected("a claim of nothing wins"));
        };
        let packed = Bytes::from(record.encode());
        let brief = record.retention < BRIEF;
        let sent = if brief {
            let life = millis(record.retention).to_string();
            let arguments = [&packed[..], life.as_bytes()];
            self.link.run(&self.scripts.fresh, key, &arguments).await
        } else {
            let mut set = sized("SET", 7, key.len() + packed.len());
            set.arg(key).arg(&packed[..]).arg("NX").arg("GET");
            set.arg("PX").arg(millis(record.retention));
            self.link.query(key, &set).await
        };
        let reply = match sent {
            Err(full) if full.kind == StoreErrorKind::Full => self.find(key, full).await?,
            reply => reply?,
        };
        let won = match reply {
            Value::Nil => Grant {
                memo: packed,
                ..grant
            },
            Value::Int(time) if brief => stamped(grant, &packed, time)?,
            Value::BulkString(found) => return self.contend(ask, key, found.into(), now).await,
            _ => return Err(unexpected("SET")),
        };
        Ok(Some(Claimed::Won(won)))
    }

    /// A full server refuses the claim's command without a look at the key. Only a new key needs room (P26).
    async fn find(&self, key: &[u8], full: StoreError) -> StoreResult<Value> {
        match self.link.query(key, &get(key)).await? {
            Value::Nil => Err(full),
            found => Ok(found),
        }
    }

    /// A claim that lost to `found`: most states say the answer at once, the others are decided by age. `None` where
    /// the record is gone by then.
    async fn contend(
        &self,
        ask: &Claim,
        key: &[u8],
        found: Bytes,
        now: Timestamp,
    ) -> StoreResult<Option<Claimed>> {
        let record = Record::decode_for(&ask.identity, &found)?;
        let same = record.fingerprint == ask.fingerprint;
        let aged = record.state == State::Released
            || (record.state == State::Running && same && record.token != ask.token);
        if !aged {
            let decision = protocol::claim(Some(&record), ask, while_live(&record, now));
            if !self.is_told(&decision.answer) || self.confirm(key, &found).await? {
                return Ok(Some(with_memo(decision.answer, found)));
            }
        }
        for tried in 1..=TRIES {
            let Some((record, packed, now)) = self.look(&ask.identity, key).await? else {
                return Ok(None);
            };
            let decision = protocol::claim(Some(&record), ask, now);
            let Some(write) = decision.write else {
                if self.is_told(&decision.answer) && !self.confirm(key, &packed).await? {
                    continue;
                }
                return Ok(Some(with_memo(decision.answer, packed)));
            };
            // The last step is a look: only that finds a write whose reply got lost.
            if tried < TRIES
                && let Some(written) = self.swap(key, &packed, &write).await?
            {
                return Ok(Some(with_memo(decision.answer, written)));
            }
        }
        Ok(Some(protocol::overtaken()))
    }

    /// Whether somebody will act on an answer that nothing was written for.
    fn is_told(&self, answer: &Claimed) -> bool {
        self.link.is_confirming() && matches!(answer, Claimed::Won(_) | Claimed::Replay(_))
    }

    /// Makes sure that a record which was read has spread as far as the store's level asks; `false` where it
    /// is another by now. Nothing to do at the server's own level.
    pub(super) async fn confirm(&self, key: &[u8], packed: &[u8]) -> StoreResult<bool> {
        if !self.link.is_confirming() {
            return Ok(true);
        }
        let header = packed.get(..semel_core::record::HEADER_BYTES);
        let arguments = [header.unwrap_or_default()];
        let reply = self.link.run(&self.scripts.confirm, key, &arguments);
        Ok(Box::pin(reply).await? == DONE)
    }

    /// The record, its bytes, and what time it is as the record's own time to live tells.
    pub(super) async fn look(
        &self,
        identity: &Identity,
        key: &[u8],
    ) -> StoreResult<Option<(Record, Bytes, Timestamp)>> {
        let reply = self.link.run(&self.scripts.look, key, &[]).await?;
        if reply == Value::Nil {
            return Ok(None);
        }
        let (packed, left): (Vec<u8>, i64) =
            redis::from_redis_value(reply).map_err(|_| unexpected("look"))?;
        let packed = Bytes::from(packed);
        let record = Record::decode_for(identity, &packed)?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let now = if is_deleted(&record) {
            // What a deletion leaves has another time to live, and any claim wins over it.
            self.time.now().max(record.written_at)
        } else {
            let age = record.retention.saturating_sub(left);
            record.written_at.plus(age)
        };
        Ok(Some((record, packed, now)))
    }

    /// Replaces `old` by `new` if its header is still the same; gives the bytes written, or `None` where
    /// another was quicker.
    pub(super) async fn swap(
        &self,
        key: &[u8],
        old: &Bytes,
        new: &Record,
    ) -> StoreResult<Option<Bytes>> {
        self.replace(key, old, new, new.retention).await
    }

    /// The same for a record that was written long ago elsewhere, and lives only so much longer.
    async fn replace(
        &self,
        key: &[u8],
        old: &Bytes,
        new: &Record,
        life: Duration,
    ) -> StoreResult<Option<Bytes>> {
        let packed = Bytes::from(new.encode());
        let life = millis(life).to_string();
        let header = &old[..semel_core::record::HEADER_BYTES];
        let arguments = [header, &packed[..], life.as_bytes()];
        let reply = self.link.run(&self.scripts.swap, key, &arguments).await?;
        Ok((reply == DONE).then_some(packed))
    }
}

impl Inner {
    /// A record from another store (P43).
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        let key = self.key(identity);
        let life = record.expires_at().since(self.time.now());
        if life.as_millis() == 0 {
            return Ok(Restored::Kept);
        }
        let packed = record.encode();
        for _ in 0..TRIES {
            let mut set = sized("SET", 6, key.len() + packed.len());
            set.arg(&key).arg(&packed[..]).arg("NX");
            set.arg("PX").arg(millis(life));
            if self.link.query(&key, &set).await? != Value::Nil {
                return Ok(Restored::Written);
            }
            let Some((found, old, now)) = self.look(identity, &key).await? else {
                continue;
            };
            let decision = protocol::restore(Some(&found), record, now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            if self.replace(&key, &old, &write, life).await?.is_some() {
                return Ok(decision.answer);
            }
        }
        Err(overtaken())
    }
}

/// A lease whose fence and times the server gave, and its record as it is there.
fn stamped(grant: Grant, packed: &[u8], time: i64) -> StoreResult<Grant> {
    let time = u64::try_from(time).map_err(|_| unexpected("TIME"))?;
    let mut memo = packed.to_vec();
    for at in [offset::OWNER, offset::CREATED, offset::WRITTEN] {
        let field = memo
            .get_mut(at..at + 8)
            .ok_or_else(|| unexpected("a short record"))?;
        field.copy_from_slice(&time.to_le_bytes());
    }
    Ok(Grant {
        fence: Fence(time),
        memo: memo.into(),
        ..grant
    })
}

/// `now`, as far as it can be: the server gave the record, so it is live, whatever our estimate of the server's
/// clock says (P23).
fn while_live(record: &Record, now: Timestamp) -> Timestamp {
    let last = record.expires_at().as_micros().saturating_sub(1);
    now.max(record.written_at).min(Timestamp::from_micros(last))
}

fn with_memo(answer: Claimed, memo: Bytes) -> Claimed {
    match answer {
        Claimed::Won(grant) => Claimed::Won(Grant { memo, ..grant }),
        other => other,
    }
}
