//! A store that is right, but for the very microsecond in which a lease or a record ends.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::FakeClock;
use semel_core::{
    BoxFuture, Busy, Claim, Claimed, Clock as _, Identity, Record, State, Store, StoreAdmin,
    StoreResult,
};

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

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(async move {
            let soon = self.clock.wall().plus(Duration::from_micros(1));
            let early = self.edge == Edge::ExpiresEarly;
            let found = self.inner.read(identity).await?;
            Ok(found.filter(|record| !early || record.expires_at() > soon))
        })
    }

    semel_core::forward_store!(|self| self.inner => renew, settle, resolve, watch, capabilities);
}

impl StoreAdmin for OffByOne {
    semel_core::forward_store!(|self| self.inner => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}
