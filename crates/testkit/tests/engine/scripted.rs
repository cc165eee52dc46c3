//! A memory store whose calls go as the test says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use semel_core::engine::EngineConfig;
use semel_core::store::{Capabilities, Wake};
use semel_core::wake::{Hub, Wakeup};
use semel_core::{
    BoxFuture, Certainty, Claim, Claimed, Fence, Grant, Identity, Record, Renewed, Resolution,
    Resolved, Settled, Settlement, StoreError, StoreErrorKind, StoreResult,
};

use super::*;

/// Passes calls on to `inner`, and counts claims, settlements and reads.
pub(super) struct Scripted {
    inner: Arc<dyn Store>,
    claims: AtomicUsize,
    settlements: AtomicUsize,
    reads: AtomicUsize,
    /// Claims don't return while this is set.
    pub(super) claims_hang: AtomicBool,
    /// What the next settlements fail with.
    pub(super) settlement_errors: Mutex<VecDeque<StoreErrorKind>>,
    /// Every wake-up comes at once, whatever the record says.
    pub(super) wakes_at_once: AtomicBool,
}

impl Scripted {
    pub(super) fn on(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            claims: AtomicUsize::new(0),
            settlements: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            claims_hang: AtomicBool::new(false),
            settlement_errors: Mutex::default(),
            wakes_at_once: AtomicBool::new(false),
        })
    }

    /// A process on a scripted way to a store, and another process on a plain one to the same.
    pub(super) fn rig(config: EngineConfig) -> (Rig, Arc<Self>, Rig) {
        let other = Rig::new();
        let store = Self::on(Arc::clone(&other.store));
        let rig = Rig::on(other.clock.clone(), Arc::clone(&store) as _, config);
        (rig, store, other)
    }

    pub(super) fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }

    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    pub(super) fn settlements(&self) -> usize {
        self.settlements.load(Ordering::SeqCst)
    }
}

impl Store for Scripted {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            self.claims.fetch_add(1, Ordering::SeqCst);
            // A network is between the two, so no caller goes on without a pause.
            tokio::task::yield_now().await;
            if self.claims_hang.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.inner.claim(claim).await
        })
    }

    fn renew<'a>(
        &'a self,
        grant: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        self.inner.renew(grant, checkpoint)
    }

    fn settle<'a>(
        &'a self,
        grant: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        self.settlements.fetch_add(1, Ordering::SeqCst);
        match self.settlement_errors.lock().pop_front() {
            Some(kind) => {
                let error = StoreError::new(kind, Certainty::Definite, "a scripted error");
                Box::pin(std::future::ready(Err(error)))
            }
            None => self.inner.settle(grant, settlement),
        }
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
            self.reads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.inner.read(identity).await
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        if !self.wakes_at_once.load(Ordering::SeqCst) {
            return self.inner.watch(identity);
        }
        let hub = Hub::new();
        let wakeup = hub.watch(identity);
        hub.wake(&identity.address());
        wakeup
    }

    fn capabilities(&self) -> Capabilities {
        let wake = match self.wakes_at_once.load(Ordering::SeqCst) {
            true => Wake::Hint,
            false => self.inner.capabilities().wake,
        };
        self.inner.capabilities().with_wake(wake)
    }
}
