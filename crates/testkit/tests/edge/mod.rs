//! A store that is right, but for the very microsecond in which a lease or a record ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::diagnosis::Finding;
use semel_core::store::{Connections, Page, Query, Stats};
use semel_core::wake::Wakeup;
use semel_core::{
    BoxFuture, Busy, Capabilities, Claim, Claimed, Clock as _, Fence, Grant, Identity, Record,
    Renewed, Resolution, Resolved, Restored, Settled, Settlement, State, Store, StoreAdmin,
    StoreResult, Timestamp,
};
use semel_testkit::clock::FakeClock;

/// Which end it gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A lease lapses one microsecond after its end (P8, P9).
    LapsesLate,
    /// A record expires one microsecond before its end (P20).
    ExpiresEarly,
}

pub(crate) struct OffByOne {
    pub(crate) edge: Edge,
    pub(crate) inner: Arc<dyn StoreAdmin>,
    pub(crate) clock: FakeClock,
}

impl OffByOne {
    /// Whether `record` is a lease of another's that ends now.
    fn ends_now(&self, record: &Record, ask: &Claim) -> bool {
        record.state == State::Running
            && record.lease_end() == self.clock.wall()
            && record.fingerprint == ask.fingerprint
            && record.token != ask.token
    }
}

impl Store for OffByOne {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            let found = self.inner.read(&claim.identity).await?;
            match found.filter(|record| self.ends_now(record, claim)) {
                Some(record) if self.edge == Edge::LapsesLate => Ok(Claimed::Busy(Busy {
                    since: self.clock.wall().since(record.created_at),
                    attempt: record.attempt,
                    retry_after: Duration::ZERO,
                })),
                _ => self.inner.claim(claim).await,
            }
        })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        self.inner.renew(lease, checkpoint)
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        self.inner.settle(lease, settlement)
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        self.inner.resolve(identity, fence, resolution)
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(async move {
            let soon = self.clock.wall().plus(Duration::from_micros(1));
            let early = self.edge == Edge::ExpiresEarly;
            let found = self.inner.read(identity).await?;
            Ok(found.filter(|record| !early || record.expires_at() > soon))
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        self.inner.watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

impl StoreAdmin for OffByOne {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        self.inner.list(query)
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        self.inner.delete(identity)
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        self.inner.restore(identity, record)
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        self.inner.sweep(most)
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        self.inner.expired(most)
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        self.inner.now()
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        self.inner.stats()
    }

    fn connections(&self) -> Option<Connections> {
        self.inner.connections()
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        self.inner.diagnose()
    }
}
