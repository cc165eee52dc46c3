//! Implements the store's calls, each sent through the injected faults.

use bytes::Bytes;
use rand::RngExt as _;
use semel_core::diagnosis::Finding;
use semel_core::store::{Capabilities, Connections, Page, Query, Stats, Wake};
use semel_core::wake::Wakeup;
use semel_core::{
    BoxFuture, Claim, Claimed, Fence, Grant, Identity, Record, Renewed, Resolution, Resolved,
    Restored, Settled, Settlement, Store, StoreAdmin, StoreResult, Timestamp,
};

use super::{CallKind, FaultyStore};

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl Store for FaultyStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(
            self.through(CallKind::Claim, Some(claim.token), move |store| {
                store.claim(claim)
            }),
        )
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        let send = move |store: &'a dyn StoreAdmin| store.renew(lease, checkpoint);
        Box::pin(self.through(CallKind::Renew, Some(lease.token), send))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        let send = move |store: &'a dyn StoreAdmin| store.settle(lease, settlement);
        Box::pin(self.through(CallKind::Settle, Some(lease.token), send))
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        let send = move |store: &'a dyn StoreAdmin| store.resolve(identity, fence, resolution);
        Box::pin(self.through(CallKind::Resolve, None, send))
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(self.through(CallKind::Read, None, move |store| store.read(identity)))
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        let dice = self.shared.state.lock().rng.random::<f64>();
        if dice < self.shared.faults.lose_wake {
            return Wakeup::never();
        }
        self.shared.inner.watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.shared.inner.capabilities();
        let lossy = self.shared.faults.lose_wake > 0.0 && inner.wake == Wake::Exact;
        inner.with_wake(if lossy { Wake::Hint } else { inner.wake })
    }
}

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl StoreAdmin for FaultyStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(self.through(CallKind::List, None, move |store| store.list(query)))
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(self.through(CallKind::Delete, None, move |store| store.delete(identity)))
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(self.through(CallKind::Restore, None, move |store| {
            store.restore(identity, record)
        }))
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.through(CallKind::Sweep, None, move |store| store.sweep(most)))
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.through(CallKind::Sweep, None, move |store| store.expired(most)))
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(self.through(CallKind::Stats, None, move |store| store.now()))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(self.through(CallKind::Stats, None, move |store| store.stats()))
    }

    fn connections(&self) -> Option<Connections> {
        self.shared.inner.connections()
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.through(CallKind::Diagnose, None, move |store| store.diagnose()))
    }
}
