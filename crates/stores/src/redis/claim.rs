//! Claims: one plain command, and the compare-and-swap loop only if that lost.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use semel_core::record::offset;
use semel_core::store::StoreResult;
use semel_core::{
    Claim, Claimed, Fence, Identity, Record, Restored, State, StoreError, StoreErrorKind,
    Timestamp, protocol,
};

use super::error::unexpected;
use super::script::{DONE, get, sized};
use super::{ATTEMPTS, Inner, is_deleted, millis};
use crate::cas::{self, Cell, Snapshot, Start, Swap, overtaken};

/// Below this retention, the server stamps fences and times. A shorter-lived record may expire
/// before a claim arrives that was sent before the record was written, and that claim would bring a
/// smaller fence (P22). It may also expire before the server's clock reaches a time that our
/// estimate wrote, which the next claim would make a fence.
pub(super) const BRIEF: Duration = Duration::from_secs(60);

impl Inner {
    pub(super) async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        self.watch.is_fit()?;
        let cell = ClaimCell {
            inner: self,
            ask,
            key: self.key(&ask.identity),
        };
        let now = self.time.now();
        let start = match ask.retry {
            true => cell.find(now).await?,
            false => Start::Remembered(Snapshot::absent(now)),
        };
        let decide = |found: Option<&Record>, now| protocol::claim(found, ask, now);
        let Some(change) = cas::drive(&cell, start, decide).await? else {
            return Ok(protocol::overtaken());
        };
        let Claimed::Won(grant) = change.answer else {
            return Ok(change.answer);
        };
        let read = || change.seen.found.map(|(_, packed)| packed);
        let (memo, fence) = match change.written {
            Some(WrittenRecord { memo, fence }) => (memo, fence),
            None => (read().unwrap_or_default(), None),
        };
        let fence = fence.unwrap_or(grant.fence);
        Ok(Claimed::Won(grant.with_fence(fence).with_memo(memo)))
    }

    /// A full server rejects the claim's command without reading the key. Only a new key needs
    /// space (P26).
    async fn find_existing(&self, key: &[u8], full: StoreError) -> StoreResult<Value> {
        match self.link.query(key, &get(key)).await? {
            Value::Nil => Err(full),
            found => Ok(found),
        }
    }

    /// Makes sure that a record which was read has spread as far as the store's level asks; `false`
    /// if it is another by now. Nothing to do at the server's own level.
    pub(super) async fn confirm(&self, key: &[u8], packed: &[u8]) -> StoreResult<bool> {
        if !self.link.is_confirming() {
            return Ok(true);
        }
        let header = packed.get(..semel_core::record::HEADER_BYTES);
        let arguments = [header.unwrap_or_default()];
        let reply = self.link.run(&self.scripts.confirm, key, &arguments);
        Ok(Box::pin(reply).await? == DONE)
    }

    /// Reads the record, its bytes, and the current time according to the record's time to live.
    pub(super) async fn look(
        &self,
        identity: &Identity,
        key: &[u8],
    ) -> StoreResult<Snapshot<Bytes>> {
        let reply = self.link.run(&self.scripts.look, key, &[]).await?;
        if reply == Value::Nil {
            return Ok(Snapshot::absent(self.time.now()));
        }
        let (packed, left, (seconds, micros)): (Vec<u8>, i64, (u64, u64)) =
            redis::from_redis_value(reply).map_err(|_| unexpected("look"))?;
        let packed = Bytes::from(packed);
        let record = Record::decode_for(identity, &packed)?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let now = if is_deleted(&record) {
            // What a deletion leaves has another time to live, and any claim wins over it.
            let server = Timestamp::from_micros(seconds * 1_000_000 + micros);
            server.max(record.written_at)
        } else {
            let age = record.retention.saturating_sub(left);
            record.written_at.plus(age)
        };
        Ok(Snapshot {
            found: Some((record, packed)),
            now,
        })
    }

    /// Replaces `old` by `new`, for so long, if the header is still the same. → the bytes written,
    /// or `None` if another write came first.
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
    /// Writes a record from another store (P43).
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        let life = record.expires_at().since(self.time.now());
        if life.as_millis() == 0 {
            return Ok(Restored::Kept);
        }
        let decide = |found: Option<&Record>, now| protocol::restore(found, record, now);
        let cell = RecordCell {
            life: Some(life),
            ..self.cell(identity)
        };
        let start = Start::Remembered(Snapshot::absent(self.time.now()));
        let change = cas::drive(&cell, start, decide).await?;
        change.map(|change| change.answer).ok_or_else(overtaken)
    }

    /// The compare-and-swap cell of a record that is replaced as a whole.
    pub(super) fn cell<'a>(&'a self, identity: &'a Identity) -> RecordCell<'a> {
        RecordCell {
            inner: self,
            identity,
            key: self.key(identity),
            life: None,
            confirms: false,
        }
    }
}

/// The compare-and-swap cell of a claim.
struct ClaimCell<'a> {
    inner: &'a Inner,
    ask: &'a Claim,
    key: Vec<u8>,
}

/// A record that a claim wrote.
struct WrittenRecord {
    memo: Bytes,
    /// The fence, if the server gave it.
    fence: Option<Fence>,
}

impl ClaimCell<'_> {
    /// Reads first, for a claim that expects a record.
    async fn find(&self, now: Timestamp) -> StoreResult<Start<Bytes>> {
        let start = match self.inner.link.query(&self.key, &get(&self.key)).await? {
            Value::BulkString(found) => match self.lost_to(found.into(), now)? {
                Some(seen) => Start::Current {
                    seen,
                    write_sent: false,
                },
                None => Start::Read { write_sent: false },
            },
            _ => Start::Remembered(Snapshot::absent(now)),
        };
        Ok(start)
    }

    /// The record that a claim lost to, if its state alone says the answer. `None` if its age
    /// decides, which only a read with the time to live tells.
    fn lost_to(&self, found: Bytes, now: Timestamp) -> StoreResult<Option<Snapshot<Bytes>>> {
        let record = Record::decode_for(&self.ask.identity, &found)?;
        protocol::check_keys(Some(&record), self.ask, while_live(&record, now))?;
        let is_same = record.fingerprint == self.ask.fingerprint;
        let is_aged = record.state == State::Released
            || (record.state == State::Running && is_same && record.token != self.ask.token);
        let now = while_live(&record, now);
        Ok((!is_aged).then_some(Snapshot {
            found: Some((record, found)),
            now,
        }))
    }

    /// Writes the record of a first run, if there is none.
    async fn write_first(&self, record: &Record, now: Timestamp) -> StoreResult<Swap<Self>> {
        let (inner, key) = (self.inner, &self.key[..]);
        let packed = Bytes::from(record.encode());
        let is_brief = record.retention < BRIEF;
        let sent = if is_brief {
            let life = millis(record.retention).to_string();
            let arguments = [&packed[..], life.as_bytes()];
            inner.link.run(&inner.scripts.fresh, key, &arguments).await
        } else {
            let mut set = sized("SET", 7, key.len() + packed.len());
            set.arg(key).arg(&packed[..]).arg("NX").arg("GET");
            set.arg("PX").arg(millis(record.retention));
            inner.link.query(key, &set).await
        };
        let reply = match sent {
            Err(full) if full.kind == StoreErrorKind::Full => {
                inner.find_existing(key, full).await?
            }
            reply => reply?,
        };
        let (memo, fence) = match reply {
            Value::Nil => (packed, None),
            Value::Int(time) if is_brief => stamped(&packed, time)?,
            Value::BulkString(found) => return Ok(Swap::Lost(self.lost_to(found.into(), now)?)),
            _ => return Err(unexpected("SET")),
        };
        Ok(Swap::Done(WrittenRecord { memo, fence }))
    }
}

impl Cell for ClaimCell<'_> {
    type Version = Bytes;
    type Written = WrittenRecord;

    const ATTEMPTS: u32 = ATTEMPTS;

    async fn read(&self) -> StoreResult<Snapshot<Bytes>> {
        let seen = self.inner.look(&self.ask.identity, &self.key).await?;
        protocol::check_keys(seen.record(), self.ask, seen.now)?;
        Ok(seen)
    }

    async fn swap(&self, seen: &Snapshot<Bytes>, new: Record) -> StoreResult<Swap<Self>> {
        let Some(old) = seen.version() else {
            return self.write_first(&new, seen.now).await;
        };
        let written = self
            .inner
            .replace(&self.key, old, &new, new.retention)
            .await?;
        Ok(written.map_or(Swap::Lost(None), |memo| {
            Swap::Done(WrittenRecord { memo, fence: None })
        }))
    }

    /// Confirms what the caller will act on: its own lease from before, or a stored answer.
    async fn confirm(&self, seen: &Snapshot<Bytes>) -> StoreResult<bool> {
        let Some((record, packed)) = &seen.found else {
            return Ok(true);
        };
        let is_acted_on = match record.state {
            State::Completed | State::Failed => record.fingerprint == self.ask.fingerprint,
            State::Running => record.token == self.ask.token,
            State::InDoubt | State::Released => false,
        };
        if !is_acted_on {
            return Ok(true);
        }
        self.inner.confirm(&self.key, packed).await
    }
}

/// The compare-and-swap cell of a record that is replaced as a whole.
pub(super) struct RecordCell<'a> {
    inner: &'a Inner,
    identity: &'a Identity,
    key: Vec<u8>,
    /// How long the record lives; its retention unless set. A restored record lives for the rest of
    /// its retention.
    life: Option<Duration>,
    /// Whether a settled record counts only once it has reached the store's durability level.
    confirms: bool,
}

impl RecordCell<'_> {
    pub(super) fn confirming(self) -> Self {
        Self {
            confirms: true,
            ..self
        }
    }
}

impl Cell for RecordCell<'_> {
    type Version = Bytes;
    type Written = ();

    const ATTEMPTS: u32 = ATTEMPTS;

    async fn read(&self) -> StoreResult<Snapshot<Bytes>> {
        self.inner.look(self.identity, &self.key).await
    }

    async fn swap(&self, seen: &Snapshot<Bytes>, new: Record) -> StoreResult<Swap<Self>> {
        let (inner, key) = (self.inner, &self.key[..]);
        let life = self.life.unwrap_or(new.retention);
        let written = match seen.version() {
            Some(old) => inner.replace(key, old, &new, life).await?.is_some(),
            None => {
                let packed = new.encode();
                let mut set = sized("SET", 6, key.len() + packed.len());
                set.arg(key).arg(&packed[..]).arg("NX");
                set.arg("PX").arg(millis(life));
                inner.link.query(key, &set).await? != Value::Nil
            }
        };
        Ok(match written {
            true => Swap::Done(()),
            false => Swap::Lost(None),
        })
    }

    async fn confirm(&self, seen: &Snapshot<Bytes>) -> StoreResult<bool> {
        match &seen.found {
            Some((record, packed)) if self.confirms && is_settled(record) => {
                self.inner.confirm(&self.key, packed).await
            }
            _ => Ok(true),
        }
    }
}

const fn is_settled(record: &Record) -> bool {
    matches!(
        record.state,
        State::Completed | State::Failed | State::Released
    )
}

/// The memo and the fence of a first run whose fence and times the server gave.
fn stamped(packed: &[u8], time: i64) -> StoreResult<(Bytes, Option<Fence>)> {
    let time = u64::try_from(time).map_err(|_| unexpected("TIME"))?;
    let mut memo = packed.to_vec();
    for at in [offset::OWNER, offset::CREATED, offset::WRITTEN] {
        let field = memo
            .get_mut(at..at + 8)
            .ok_or_else(|| unexpected("a short record"))?;
        field.copy_from_slice(&time.to_le_bytes());
    }
    Ok((memo.into(), Some(Fence(time))))
}

/// `now`, capped to the life of the record: the server returned it, so it is live, even if our
/// estimate of the server's clock is ahead (P23).
fn while_live(record: &Record, now: Timestamp) -> Timestamp {
    let last = record.expires_at().as_micros().saturating_sub(1);
    now.max(record.written_at).min(Timestamp::from_micros(last))
}
