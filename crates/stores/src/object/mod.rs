//! Object storage: S3 and whatever speaks it, Google Cloud Storage, Azure Blob Storage. One object
//! per key, claimed by one conditional creation.
//!
//! - **Claim** is `PUT` with `If-None-Match: *`. What loses reads the object, lets
//!   [`protocol`](semel_core::protocol) decide, and, if that says to write, replaces exactly what
//!   was read (`If-Match`). One atomic write decides, always.
//! - **Settle** and **renew** replace the object that the lease remembers. They read only if that
//!   has changed.
//! - **Time** is the server's: `Date` of its replies and `Last-Modified` of the object, with a
//!   margin; see `time`.
//! - The client library's retries are off. A write that was applied, and whose reply was lost, is
//!   recognised by its token.
//!
//! A server that ignores the conditions, or doesn't check them atomically, is rejected at start;
//! see `probe`. There are no wake-ups: a waiter polls.

mod admin;
mod bodies;
mod calls;
mod canary;
mod change;
mod client;
mod diagnosis;
mod error;
mod extra_objects;
mod http;
mod lifecycle;
mod link;
mod memo;
mod probe;
mod sweep;
#[cfg(test)]
mod tests;
mod time;
mod url;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use semel_core::identity::Address;
use semel_core::store::{Capabilities, Store, StoreResult, Wake};
use semel_core::wake::Wakeup;
use semel_core::{
    Answer, BoxFuture, Claim, Claimed, Clock, Fence, Grant, Identity, Record, Renewed, Resolution,
    Resolved, Settled, Settlement, State,
};

use link::Link;
use probe::Fitness;
use sweep::Sweeper;
use time::ServerTime;
use url::Target;

pub use bodies::ObjectBodies;
pub use error::ERRORS;
pub use extra_objects::Version;
pub use lifecycle::{Lifecycle, lifecycle, lifecycle_of};
pub use url::{Cloud, DEFAULT_PREFIX, MIN_CLOCK_MARGIN};

/// Checks that the URL can be parsed, without connecting. For `fuzz/`.
///
/// # Errors
/// As [`ObjectStore::open`] has them.
#[doc(hidden)]
pub fn check_url(url: &str) -> StoreResult<()> {
    Target::parse(url).map(drop)
}

/// Records in a bucket. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    cloud: Cloud,
    root: Path,
    margin: Duration,
    fitness: Fitness,
    sweeper: Sweeper,
    counted: admin::CachedCount,
    canaries: canary::Canaries,
    renewed: Renewals,
}

/// The key of a lease in the cache of renewals.
type LeaseKey = (Address, Fence);

/// The memos of renewals, which the leases themselves don't have. Bounded: without a memo, a
/// settlement reads first.
type Renewals = quick_cache::sync::Cache<LeaseKey, Bytes>;
const RENEWALS: usize = 4_096;

impl ObjectStore {
    /// Uses the bucket at `url`, after checking that its server keeps to conditions.
    ///
    /// | URL | bucket |
    /// |---|---|
    /// | `s3://bucket/prefix?region=eu-central-1` | of S3 |
    /// | `s3://key:secret@bucket?endpoint=http://127.0.0.1:9000` | of a server that speaks S3 |
    /// | `gs://bucket/prefix` | of Google Cloud Storage |
    /// | `az://account:key@container/prefix` | of Azure Blob Storage |
    ///
    /// Options: `endpoint`, `region`, `style`, `ca`, `clock_margin`, `requests`, `sweep`.
    /// Credentials that the URL doesn't have come from the variables that each cloud's own tools
    /// read.
    ///
    /// # Errors
    /// If the URL can't be used, the server can't be reached, or it would let two callers win: it
    /// ignores conditions, or doesn't keep to them when several ask at once.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let target = Target::parse(url)?;
        let time = Arc::new(ServerTime::new(clock));
        let objects = target.open(&time)?;
        let link = Link::new(objects, time, target.requests);
        let root = target.root();
        let fitness = Box::pin(probe::probe(&link, &root, target.cloud)).await?;
        let inner = Inner {
            link,
            cloud: target.cloud,
            root,
            margin: target.margin,
            fitness,
            sweeper: Sweeper::new(target.sweeps),
            counted: admin::CachedCount::default(),
            canaries: canary::Canaries::default(),
            renewed: Renewals::new(RENEWALS),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The underlying client, for tests and benchmarks that bypass the store. It never retries.
    #[must_use]
    pub fn client(&self) -> &Arc<dyn object_store::ObjectStore> {
        &self.inner.link.objects
    }

    /// The path of a key's record.
    #[must_use]
    pub fn path_of(&self, identity: &Identity) -> Path {
        self.inner.path_of(identity)
    }
}

impl Inner {
    /// The address in hex, in a folder named by its first two digits. It is a digest, so that names
    /// are spread evenly.
    fn path_of(&self, identity: &Identity) -> Path {
        let name = format!("{:032x}", u128::from_be_bytes(identity.address()));
        self.root.clone().join(&name[..2]).join(name)
    }

    /// Whose record lies there; `None` if it is no record of this store's: others' objects may lie
    /// below its root, and some of those have names of the same form.
    fn address(&self, path: &Path) -> Option<Address> {
        let relative = self.relative(path)?;
        let (folder, name) = relative.split_once('/')?;
        let is_lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_ours = name.len() == 32 && folder.len() == 2 && name.starts_with(folder);
        if !is_ours || !name.bytes().all(is_lower) {
            return None;
        }
        let address = u128::from_str_radix(name, 16).ok()?;
        Some(address.to_be_bytes())
    }

    /// What follows the root.
    fn relative<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let rest = path.as_ref().strip_prefix(self.root.as_ref())?;
        rest.strip_prefix('/')
    }
}

/// Whether the record is a tombstone, kept for a while after a deletion so that fences keep
/// growing.
fn is_deleted(record: &Record) -> bool {
    record.state == State::Released && record.attempt == 0
}

impl Store for ObjectStore {
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
        Box::pin(self.inner.settle(lease, settlement))
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        Box::pin(self.inner.resolve(identity, fence, resolution))
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(self.inner.read(identity))
    }

    fn watch(&self, _: &Identity) -> Wakeup {
        Wakeup::never()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("object")
            .with_durable(true)
            .with_shared(true)
            .with_wake(Wake::Never)
            .with_lists_once(true)
            .with_max_answer_bytes(Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES)
    }
}

impl std::fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectStore({}://)", self.inner.cloud.scheme())
    }
}
