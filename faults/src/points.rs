//! Crash points of an operation, at which a worker can be told to die: a store wrapper, and the
//! effect itself.

use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};
use semel::core::{
    BoxFuture, Claim, Claimed, Grant, Settled, Settlement, Store, StoreAdmin, StoreResult,
};
use semel_testkit::history::Recorder;
use serde::{Deserialize, Serialize};

/// A crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Point {
    BeforeClaim,
    AfterClaim,
    InEffect,
    BeforeSettle,
    AfterSettle,
}

impl Point {
    pub(crate) const ALL: [Self; 5] = [
        Self::BeforeClaim,
        Self::AfterClaim,
        Self::InEffect,
        Self::BeforeSettle,
        Self::AfterSettle,
    ];
}

/// The point at which this process dies, and how often it passes it before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Points(Arc<Mutex<Option<(Point, u32)>>>);

impl Points {
    pub(crate) fn arm(&self, at: Option<(Point, u32)>) {
        *self.0.lock() = at;
    }

    /// Passes a point, or dies there at once without flushing anything.
    pub(crate) fn pass(&self, point: Point) {
        let mut armed = self.0.lock();
        match &mut *armed {
            Some((at, 0)) if *at == point => die(),
            Some((at, left)) if *at == point => *left -= 1,
            _ => {}
        }
    }
}

/// Ends this process at once.
pub(crate) fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// A store with crash points before and after its calls.
pub(crate) struct PausingStore {
    pub(crate) inner: Recorder,
    pub(crate) points: Points,
}

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl Store for PausingStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(async move {
            self.points.pass(Point::BeforeClaim);
            let answer = self.inner.claim(claim).await;
            self.points.pass(Point::AfterClaim);
            answer
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(async move {
            self.points.pass(Point::BeforeSettle);
            let answer = self.inner.settle(lease, settlement).await;
            self.points.pass(Point::AfterSettle);
            answer
        })
    }

    semel::core::forward_store!(|self| self.inner => renew, resolve, read, watch, capabilities);
}

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl StoreAdmin for PausingStore {
    semel::core::forward_store!(|self| self.inner => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}
