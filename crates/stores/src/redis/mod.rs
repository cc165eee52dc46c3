//! Redis and Valkey: one string per key, claimed by one plain command.
//!
//! - **Claim** is `SET key record NX GET PX retention`: it wins, or answers with the record it lost
//!   to. Only a claim that loses to a running or released record takes a second step, and a script
//!   decides it.
//! - **Settle** compares the owner inside the server and writes; with `SET … IFEQ` if the server
//!   has it, else by script.
//! - **Time** is the server's: a record's time to live is its retention, so *retention − time to
//!   live* is its age. No clock of this process decides anything.
//!
//! Where several servers keep the records (Sentinel, Cluster), every command still has one key and
//! goes to one server; see `docs/stores/redis.md` for the URLs, options and levels of durability.
//!
//! A record is removed by the server when it expires; there is nothing to sweep.

mod admin;
mod claim;
mod cluster;
mod diagnosis;
mod durability;
mod error;
mod finder;
mod health;
mod link;
mod login;
mod node;
mod script;
mod settle;
mod size;
mod slot;
mod time;
mod url;
mod wait_pool;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use semel_core::identity::Address;
use semel_core::store::{Capabilities, Store, StoreResult, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{
    Answer, BoxFuture, Claim, Claimed, Clock, Fence, Grant, Identity, Record, Renewed, Resolution,
    Resolved, Settled, Settlement, protocol,
};

use crate::cas::{self, Start, overtaken};
use error::unexpected;
use health::HealthWatch;
use link::Link;
use script::Scripts;
use time::ServerTime;
use url::Target;
use wakes::Wakes;

pub use error::ERRORS;
pub use health::RedisHealth;
pub use size::RedisUsage;
pub use url::DEFAULT_PREFIX;

/// Checks that the URL can be parsed, without connecting. For `fuzz/`.
///
/// # Errors
/// As [`RedisStore::open`] has them.
#[doc(hidden)]
pub fn check_url(url: &str) -> StoreResult<()> {
    Target::parse(url).map(drop)
}

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
    watch: HealthWatch,
}

/// How many decisions are made on one key before the call counts as overtaken.
const ATTEMPTS: u32 = 100;

impl RedisStore {
    /// Connects to the servers at `url` and checks that they are fit.
    ///
    /// | URL | servers |
    /// |---|---|
    /// | `redis://127.0.0.1:6379/0` | one |
    /// | `redis+sentinel://h1:26379,h2:26379/master-name/0` | whichever the sentinels say is the master |
    /// | `redis+cluster://h1:6379,h2:6379` | a cluster |
    ///
    /// `rediss` in place of `redis` means TLS. A user and a password come before the hosts, as in
    /// `redis://user:password@host`. Options: `prefix`, `durability`, `ca`, `cert`, `key`,
    /// `sentinel_user`, `sentinel_password`.
    ///
    /// # Errors
    /// If the URL can't be used, no server can be reached, or one would lose records: too old, a
    /// replica, or set to evict keys.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let target = Target::parse(url)?;
        let prefix = target.prefix.clone();
        let link = Box::pin(Link::open(target, Arc::clone(&clock))).await?;
        let watch = Box::pin(HealthWatch::new(&link)).await?;
        Box::pin(link.has_level()).await?;
        let time = Box::pin(ServerTime::new(Arc::clone(&clock), &link)).await?;
        let (wakes, watched) = Wakes::new();
        let inner = Inner {
            link,
            prefix,
            time,
            scripts: Scripts::new(),
            hub: Hub::new(),
            wakes,
            watch,
        };
        let store = Self {
            inner: Arc::new(inner),
        };
        wakes::listen(&store.inner, watched, Arc::clone(&clock));
        health::keep_watch(&store.inner, clock);
        Ok(store)
    }

    /// The state of the servers, as of the last probe.
    #[must_use]
    pub fn health(&self) -> RedisHealth {
        self.inner.watch.health()
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

    async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> StoreResult<Resolved> {
        let decide = |found: Option<&Record>, now| {
            // The remains of a deletion only keep the fence, and would look like a released record.
            let found = found.filter(|record| !is_deleted(record));
            protocol::resolve(found, fence, resolution, now)
        };
        let cell = self.cell(identity).confirming();
        let start = Start::Read { write_sent: false };
        let change = cas::drive(&cell, start, decide).await?;
        change.map(|change| change.answer).ok_or_else(overtaken)
    }

    async fn read(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let key = self.key(identity);
        for _ in 0..ATTEMPTS {
            let found: Bytes = match self.link.query(&key, &script::get(&key)).await? {
                Value::Nil => return Ok(None),
                Value::BulkString(found) => found.into(),
                _ => return Err(unexpected("GET")),
            };
            let record = Record::decode_for(identity, &found)?;
            if is_deleted(&record) {
                return Ok(None);
            }
            if self.confirm(&key, &found).await? {
                return Ok(Some(record));
            }
        }
        Err(overtaken())
    }
}

/// Whether the record is the remains of a deletion, kept so that fences keep growing.
const fn is_deleted(record: &Record) -> bool {
    record.attempt == 0
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
        Capabilities::new("redis")
            .with_durable(true)
            .with_shared(true)
            .with_wake(Wake::Hint)
            // SCAN may return a key again if the table is resized meanwhile.
            .with_lists_once(false)
            .with_max_answer_bytes(Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES)
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisStore({})", self.health().version)
    }
}
