//! SQLite: one file on one host, used by several processes at once, without a server.
//!
//! - **Changes** are made by one writer per process, all that wait in one transaction (`BEGIN
//!   IMMEDIATE`): read the record, let [`protocol`] decide, write. A process that is killed leaves
//!   nothing half done.
//! - **Reads**, and claims that find an answer, take no lock: the file has a write-ahead log.
//! - **Time** is this host's clock, which all processes on it share.
//! - Waiters poll the file's change counter.
//!
//! The tables are in `migrations/sqlite`.

mod admin;
mod change;
mod diagnosis;
mod error;
mod file;
mod lock_queue;
mod options;
mod reader;
mod schema;
mod size;
mod wakes;
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use semel_core::store::{Capabilities, Store, StoreResult, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{
    Answer, BoxFuture, Claim, Claimed, Clock, Fence, Grant, Identity, Record, Renewed, Resolution,
    Resolved, Settled, Settlement, protocol,
};

pub use error::ERRORS;
pub use schema::{MIGRATIONS, pending};
pub use size::SqliteUsage;

use change::Change;
use file::FileId;
use options::Options;
use reader::Reader;
use wakes::Wakes;
use writer::Writer;

/// Checks that the URL can be parsed, without connecting. For `fuzz/`.
///
/// # Errors
/// As [`SqliteStore::open`] has them.
#[doc(hidden)]
pub fn check_url(url: &str) -> StoreResult<()> {
    Options::parse(url).map(drop)
}

/// Records in an SQLite file. Cheap to clone.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    writer: Writer,
    reader: Reader,
    place: FileId,
    hub: Hub,
    wakes: Arc<Wakes>,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Opens the file at `url`, such as `sqlite:///var/lib/semel/keys.db`; makes it, readable by
    /// its owner alone, where there is none. Its folder must be there.
    ///
    /// | option in the URL | meaning |
    /// |---|---|
    /// | `busy_ms=4000` | how long to wait for another process's write, in milliseconds |
    /// | `migrate=off` | the tables are made by somebody else: `semel migrate` |
    ///
    /// # Errors
    /// If it can't be opened, is another application's, or on a file system that hosts share.
    pub async fn open(url: &str, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let options = Options::parse(url)?;
        file::prepare(&options.path)?;
        let connection = schema::open(&options, &clock).await?;
        let place = FileId::new(&options.path)?;
        let writer = Writer::start(
            connection,
            place.clone(),
            options.clone(),
            Arc::clone(&clock),
        );
        let wakes = Arc::new(Wakes::default());
        let inner = Arc::new(Inner {
            writer,
            reader: Reader::new(&options),
            place,
            hub: Hub::new(),
            wakes: Arc::clone(&wakes),
            clock,
        });
        wakes::watch_changes(&inner, wakes, options);
        Ok(Self { inner })
    }
}

impl Inner {
    async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        // A duplicate is answered without waiting for the write lock.
        let found = self.find(&ask.identity).await?;
        if found.is_some() {
            let now = self.clock.wall();
            protocol::check_keys(found.as_ref(), ask, now)?;
            let decision = protocol::claim(found.as_ref(), ask, now);
            if decision.write.is_none() {
                return Ok(decision.answer);
            }
        }
        let ask = Box::new(ask.clone());
        self.writer.make(|reply| Change::Claim(ask, reply)).await
    }

    /// The record, expired or not. A connection that is opened late may read another file than the
    /// one that the writer has.
    async fn find(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let found = self.reader.find(identity).await;
        self.place.check_unchanged()?;
        found
    }
}

impl Store for SqliteStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(self.inner.claim(claim))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        let change = move |reply| Change::Renew(lease.clone(), checkpoint.cloned(), reply);
        Box::pin(self.inner.writer.make(change))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        let change = move |reply| Change::Settle(lease.clone(), settlement.clone(), reply);
        Box::pin(async move {
            let settled = self.inner.writer.make(change).await?;
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
        let change = move |reply| Change::Resolve(*identity, fence, resolution.clone(), reply);
        Box::pin(async move {
            let resolved = self.inner.writer.make(change).await?;
            self.inner.hub.wake(&identity.address());
            Ok(resolved)
        })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(async move {
            let found = self.inner.find(identity).await?;
            let now = self.inner.clock.wall();
            Ok(found.filter(|record| !record.is_expired(now)))
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        let wakeup = self.inner.hub.watch(identity);
        self.inner.wakes.watch(identity.address());
        wakeup
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite")
            .with_durable(true)
            .with_shared(true)
            .with_wake(Wake::Hint)
            .with_lists_once(true)
            .with_max_answer_bytes(Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES)
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteStore({})", self.inner.place.path().display())
    }
}
