//! [`Scene`]: the part of a store that one check uses, with its spans and claims.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{Claim, ClaimTerms, CrashPolicy, Namespace, StoreAdmin};

use super::make::{chance, claim_in, terms};
use super::{Spans, Subject};

/// A lease that no check outlasts where time is real.
const LONG_LEASE: Duration = Duration::from_secs(300);
/// A retention that no check outlasts where time is real, and that doesn't litter a shared server.
const LONG_RETENTION: Duration = Duration::from_secs(600);
/// Time enough for the calls of a check, on a server that writes each to its disk beside five other
/// tests.
const TIME_TO_ACT: Duration = Duration::from_secs(6);
/// Attempts that no check uses up, unless it says otherwise.
const MANY: u16 = 10;

/// One check's corner of a store.
#[derive(Clone)]
pub struct Scene {
    subject: Arc<dyn Subject>,
    store: Arc<dyn StoreAdmin>,
    environment: String,
}

impl Scene {
    /// An unused part of `subject`.
    #[must_use]
    pub fn new(subject: Arc<dyn Subject>) -> Self {
        let store = subject.store();
        Self {
            subject,
            store,
            environment: format!("suite-{:032x}", chance()),
        }
    }

    /// The same corner, reached as another process would reach it.
    #[must_use]
    pub fn from_another_process(&self) -> Self {
        Self {
            store: self.subject.another(),
            ..self.clone()
        }
    }

    /// The same corner of another store.
    #[must_use]
    pub(super) fn over(&self, store: Arc<dyn StoreAdmin>) -> Self {
        Self {
            store,
            ..self.clone()
        }
    }

    pub(super) fn subject(&self) -> &dyn Subject {
        &*self.subject
    }

    /// The store under test.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn StoreAdmin> {
        &self.store
    }

    /// The environment that all keys of this scene live in.
    #[must_use]
    pub fn environment(&self) -> &str {
        &self.environment
    }

    /// The store's spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.subject.spans()
    }

    /// Lets `time` pass on the store's clock.
    pub async fn pass(&self, time: Duration) {
        self.subject.pass(time).await;
    }

    /// Waits until a lease taken or renewed by now has lapsed, if its terms are [`Scene::lapsing`].
    pub async fn lapse(&self) {
        self.pass(self.spans().lease + self.spans().grace).await;
    }

    /// Waits until a record written by now has expired, if its terms are [`Scene::expiring`].
    pub async fn expire(&self) {
        self.pass(self.spans().retention + self.spans().grace).await;
    }

    /// Waits until a record written by now has expired, if its terms are [`Scene::expiring_late`].
    pub async fn expire_late(&self) {
        self.pass(self.late_retention() + self.spans().grace).await;
    }

    /// ClaimTerms under which neither lease nor record ends during a check.
    pub fn lasting(&self, crash: CrashPolicy) -> anyhow::Result<ClaimTerms> {
        terms(
            LONG_LEASE.max(self.spans().lease * 4),
            self.long_retention(),
            crash,
            MANY,
        )
    }

    /// ClaimTerms with a lease short enough to wait for its end.
    pub fn lapsing(&self, crash: CrashPolicy) -> anyhow::Result<ClaimTerms> {
        self.lapsing_after(crash, MANY)
    }

    /// Like [`Scene::lapsing`], with at most `attempts` runs.
    pub fn lapsing_after(&self, crash: CrashPolicy, attempts: u16) -> anyhow::Result<ClaimTerms> {
        terms(self.spans().lease, self.long_retention(), crash, attempts)
    }

    /// ClaimTerms with a retention short enough to wait for its end.
    pub fn expiring(&self, crash: CrashPolicy) -> anyhow::Result<ClaimTerms> {
        terms(self.spans().lease, self.spans().retention, crash, MANY)
    }

    /// Like [`Scene::expiring`], for a check that needs the record before its end: it has seconds
    /// for that.
    pub fn expiring_late(&self, crash: CrashPolicy) -> anyhow::Result<ClaimTerms> {
        terms(self.spans().lease, self.late_retention(), crash, MANY)
    }

    /// The retention of [`Scene::expiring_late`].
    pub(super) fn late_retention(&self) -> Duration {
        self.spans().retention.max(TIME_TO_ACT)
    }

    /// Outlives several leases, and the expiry of other records.
    fn long_retention(&self) -> Duration {
        LONG_RETENTION
            .max(self.spans().lease * 20)
            .max(self.late_retention() * 4)
    }

    /// The claim of a key that nobody used before, under lasting terms with takeover.
    pub fn fresh(&self) -> anyhow::Result<Claim> {
        self.fresh_on(self.lasting(CrashPolicy::Takeover)?)
    }

    /// The claim of a key that nobody used before, under `terms`.
    pub fn fresh_on(&self, terms: ClaimTerms) -> anyhow::Result<Claim> {
        let key = format!("key-{:032x}", chance());
        self.claim_of("tenant", "scope", &key, terms)
    }

    /// The claim of `key` for this tenant and scope.
    pub fn claim_of(
        &self,
        tenant: &str,
        scope: &str,
        key: &str,
        terms: ClaimTerms,
    ) -> anyhow::Result<Claim> {
        let namespace = Namespace::new(&self.environment, tenant, scope)?;
        claim_in(namespace, key, terms)
    }
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scene({})", self.environment)
    }
}
