//! Redis and Valkey: one string per key, claimed by one plain command.
//!
//! - **Claim** is `SET key record NX GET PX retention`: it wins, or answers with the record it lost to. Only
//!   a claim that loses to a running or released record takes a second step, and a script decides it.
//! - **Settle** compares the owner inside the server and writes; with `SET … IFEQ` where the server has it,
//!   else by script.
//! - **Time** is the server's: a record's time to live is its retention, so *retention − time to live* is how
//!   long ago it was written. No clock of ours decides anything.
//!
//! A record is removed by the server when it expires; there is nothing to sweep.

mod admin;
mod error;
mod health;
mod link;
mod script;
mod time;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Client, Value};
use semel_core::identity::Address;
use semel_core::store::{Capabilities, Store, StoreResult, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{
    Answer, BoxFuture, Claim, Claimed, Clock, Fence, Grant, Identity, Record, Renewed, Resolution,
    Resolved, Settled, Settlement, State, Timestamp, protocol,
};

use error::{store_error, unexpected};
use link::Link;
use script::{DONE, MARK, Scripts};
use time::ServerTime;
use wakes::Wakes;

/// Records in Redis or Valkey. Cheap to clone.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    prefix: String,
    time: ServerTime,
    scripts: Scripts,
    hub: Hub,
    wakes: Wakes,
    server: health::Server,
}

/// What stands before the address in every key.
pub const DEFAULT_PREFIX: &str = "semel:";

/// How often a step that was overtaken is tried again before giving up.
const TRIES: usize = 16;

impl RedisStore {
    /// Connects to the server at `url`, such as `redis://127.0.0.1:6379/0`, and checks that it is fit.
    ///
    /// # Errors
    /// Where it can't be reached, or would lose records: too old, or set to evict keys.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let client = Client::open(url).map_err(store_error)?;
        let link = Link::open(client.clone()).await?;
        let server = health::check(&link).await?;
        let time = ServerTime::new(Arc::clone(&clock));
        let (prefix, scripts) = (DEFAULT_PREFIX.to_owned(), Scripts::new());
        let (wakes, watched) = Wakes::new();
        let inner = Inner {
            link,
            prefix,
            time,
            scripts,
            hub: Hub::new(),
            wakes,
            server,
        };
        let store = Self {
            inner: Arc::new(inner),
        };
        wakes::listen(&store.inner, client, watched, Arc::clone(&clock));
        health::watch_over(&store.inner, clock);
        Ok(store)
    }
}

impl Inner {
    /// Prefix and address. In hex, so that no brace in it can steer a cluster's slots.
    fn key(&self, identity: &Identity) -> Vec<u8> {
        self.key_at(&identity.address())
    }

    fn key_at(&self, address: &Address) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + 32);
        key.extend_from_slice(self.prefix.as_bytes());
        for byte in address {
            key.push(HEX[usize::from(byte >> 4)]);
            key.push(HEX[usize::from(byte & 15)]);
        }
        key
    }

    async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        self.server.is_fit()?;
        let now = self.time.now(&self.link).await?;
        let decision = protocol::claim(None, ask, now);
        let (Claimed::Won(grant), Some(record)) = (decision.answer, decision.write) else {
            return Err(unexpected("a claim of nothing wins"));
        };
        let (key, packed) = (self.key(&ask.identity), Bytes::from(record.encode()));
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&packed[..]).arg("NX").arg("GET");
        set.arg("PX").arg(millis(record.retention));
        match self.link.query(&set).await? {
            Value::Nil => Ok(Claimed::Won(Grant {
                memo: packed,
                ..grant
            })),
            Value::BulkString(found) => self.contend(ask, &key, found.into(), now).await,
            _ => Err(unexpected("SET")),
        }
    }

    /// A claim that lost to `found`: most states say the answer at once, the others are decided by age.
    async fn contend(
        &self,
        ask: &Claim,
        key: &[u8],
        found: Bytes,
        now: Timestamp,
    ) -> StoreResult<Claimed> {
        let record = Record::decode_for(&ask.identity, &found)?;
        let same = record.fingerprint == ask.fingerprint;
        let aged = record.state == State::Released
            || (record.state == State::Running && same && record.token != ask.token);
        if !aged {
            let mut decision = protocol::claim(Some(&record), ask, now.max(record.written_at));
            if let Claimed::Won(grant) = &mut decision.answer {
                grant.memo = found;
            }
            return Ok(decision.answer);
        }
        for _ in 0..TRIES {
            let Some((record, packed, now)) = self.look(&ask.identity, key).await? else {
                return Box::pin(self.claim(ask)).await;
            };
            let decision = protocol::claim(Some(&record), ask, now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            if let Some(written) = self.swap(key, &packed, &write).await? {
                return Ok(with_memo(decision.answer, written));
            }
        }
        Err(unexpected("overtaken too often"))
    }

    /// The record, its bytes, and what time it is as the record's own time to live tells.
    async fn look(
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
        let now = record
            .written_at
            .plus(record.retention.saturating_sub(left));
        Ok(Some((record, packed, now)))
    }

    /// Replaces `old` by `new` if its header is still the same; gives the bytes written, or `None` where
    /// another was quicker.
    async fn swap(&self, key: &[u8], old: &Bytes, new: &Record) -> StoreResult<Option<Bytes>> {
        let packed = Bytes::from(new.encode());
        let life = millis(new.retention).to_string();
        let header = &old[..semel_core::record::HEADER_BYTES];
        let arguments = [header, &packed[..], life.as_bytes(), MARK];
        let reply = self.link.run(&self.scripts.swap, key, &arguments).await?;
        Ok((reply == DONE).then_some(packed))
    }

    async fn settle(&self, lease: &Grant, settlement: &Settlement) -> StoreResult<Settled> {
        let key = self.key(&lease.identity);
        let now = self.time.now(&self.link).await?;
        // A doubt keeps the checkpoint, which the memo doesn't know of.
        let doubt = matches!(settlement, Settlement::Doubt);
        let mut packed = if doubt {
            Bytes::new()
        } else {
            lease.memo.clone()
        };
        for _ in 0..TRIES {
            let Some(record) = self.own_record(lease, &key, &packed).await? else {
                return Ok(Settled::Lost);
            };
            let now = now.max(record.written_at);
            let decision =
                protocol::settle(Some(&record), lease.fence, lease.token, settlement, now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            match self.write_settlement(lease, &key, &packed, &write).await? {
                Value::Nil => return Ok(Settled::Lost),
                Value::BulkString(found) => packed = found.into(),
                _ => return Ok(decision.answer),
            }
        }
        Err(unexpected("overtaken too often"))
    }

    /// What the lease's own record says: from the memo, or by reading it.
    async fn own_record(
        &self,
        lease: &Grant,
        key: &[u8],
        packed: &Bytes,
    ) -> StoreResult<Option<Record>> {
        let known = Record::decode_for(&lease.identity, packed).ok();
        let is_fresh = *packed != lease.memo;
        if let Some(record) =
            known.filter(|known| is_fresh || known.is_owned_by(lease.fence, lease.token))
        {
            return Ok(Some(record));
        }
        match self.link.query(redis::cmd("GET").arg(key)).await? {
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
        old: &Bytes,
        new: &Record,
    ) -> StoreResult<Value> {
        let packed = new.encode();
        if self.server.has_ifeq && !old.is_empty() {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(&packed).arg("IFEQ").arg(&old[..]);
            set.arg("PX").arg(millis(new.retention));
            if self.link.query(&set).await? != Value::Nil {
                return Ok(DONE);
            }
        }
        let (owner, life) = (owner(lease), millis(new.retention).to_string());
        let arguments = [&owner[..], &packed, life.as_bytes(), MARK];
        self.link.run(&self.scripts.settle, key, &arguments).await
    }

    async fn renew(&self, lease: &Grant, checkpoint: Option<&Bytes>) -> StoreResult<Renewed> {
        let key = self.key(&lease.identity);
        let Some(record) = self.own_record(lease, &key, &lease.memo).await? else {
            return Ok(Renewed::Lost);
        };
        let now = self.time.now(&self.link).await?.max(record.written_at);
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
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            if self.swap(&key, &packed, &write).await?.is_some() {
                return Ok(decision.answer);
            }
        }
        Err(unexpected("overtaken too often"))
    }

    async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> StoreResult<Resolved> {
        let key = self.key(identity);
        for _ in 0..TRIES {
            let Some((record, packed, now)) = self.look(identity, &key).await? else {
                return Ok(Resolved::NotInDoubt);
            };
            let decision = protocol::resolve(Some(&record), fence, resolution, now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            if self.swap(&key, &packed, &write).await?.is_some() {
                return Ok(decision.answer);
            }
        }
        Err(unexpected("overtaken too often"))
    }

    async fn read(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        match self
            .link
            .query(redis::cmd("GET").arg(self.key(identity)))
            .await?
        {
            Value::Nil => Ok(None),
            Value::BulkString(found) => {
                let record = Record::decode_for(identity, &found.into())?;
                Ok(Some(record).filter(|record| !is_deleted(record)))
            }
            _ => Err(unexpected("GET")),
        }
    }
}

/// What a deletion leaves for a minute, so that fences keep growing.
const fn is_deleted(record: &Record) -> bool {
    record.attempt == 0
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Fence and token, as they stand in a packed record.
fn owner(lease: &Grant) -> [u8; 24] {
    let mut owner = [0; 24];
    owner[..8].copy_from_slice(&lease.fence.0.to_le_bytes());
    owner[8..].copy_from_slice(&lease.token.0.to_le_bytes());
    owner
}

fn with_memo(answer: Claimed, memo: Bytes) -> Claimed {
    match answer {
        Claimed::Won(grant) => Claimed::Won(Grant { memo, ..grant }),
        other => other,
    }
}

impl Store for RedisStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(self.inner.claim(claim))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        Box::pin(self.inner.renew(lease, checkpoint))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(async move {
            let settled = self.inner.settle(lease, settlement).await?;
            self.inner.hub.wake(&lease.identity.address());
            Ok(settled)
        })
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        Box::pin(async move {
            let resolved = self.inner.resolve(identity, fence, resolution).await?;
            self.inner.hub.wake(&identity.address());
            Ok(resolved)
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(self.inner.read(identity))
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        let wakeup = self.inner.hub.watch(identity);
        self.inner.wakes.watch(identity.address());
        wakeup
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "redis",
            durable: true,
            shared: true,
            wake: Wake::Hint,
            max_answer_bytes: Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES,
        }
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisStore({})", self.inner.server.version)
    }
}
