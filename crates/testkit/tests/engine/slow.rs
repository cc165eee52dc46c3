//! A store whose claims are answered when the test says so.

use std::sync::atomic::{AtomicUsize, Ordering};

use semel_core::{BoxFuture, Certainty, Claim, Claimed, StoreError, StoreErrorKind, StoreResult};

use super::*;

/// A memory store that counts claims, and answers them once the test lets it.
pub(super) struct Slow {
    inner: Arc<dyn Store>,
    claims: AtomicUsize,
    // A permit for each claim that may be answered; closed for those that fail.
    pub(super) permits: tokio::sync::Semaphore,
    failure: Mutex<Option<StoreErrorKind>>,
}

impl Slow {
    /// The next claim that is answered fails with this.
    pub(super) fn fail_next(&self, kind: StoreErrorKind) {
        *self.failure.lock() = Some(kind);
    }

    pub(super) fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }
}

impl Store for Slow {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            self.claims.fetch_add(1, Ordering::SeqCst);
            // Decided when it is sent, told when the test says: the oldest news that a reply can
            // bring.
            let claimed = self.inner.claim(claim).await;
            match self.permits.acquire().await {
                Ok(permit) => permit.forget(),
                Err(_) => {
                    let (kind, certainty) = (StoreErrorKind::Rejected, Certainty::Definite);
                    return Err(StoreError::new(kind, certainty, "closed"));
                }
            }
            match self.failure.lock().take() {
                Some(kind) => Err(StoreError::new(kind, Certainty::Definite, "scripted")),
                None => claimed,
            }
        })
    }

    semel_core::forward_store!(|self| self.inner => renew, settle, resolve, read, watch, capabilities);
}

/// A process on a slow way to a store, and another process on a quick one to the same.
pub(super) fn slow() -> (Rig, Arc<Slow>, Rig) {
    let other = Rig::new();
    let slow = Arc::new(Slow {
        inner: Arc::clone(&other.store),
        claims: AtomicUsize::new(0),
        permits: tokio::sync::Semaphore::new(0),
        failure: Mutex::default(),
    });
    let rig = Rig::on(
        other.clock.clone(),
        Arc::clone(&slow) as _,
        EngineConfig::default(),
    );
    (rig, slow, other)
}
