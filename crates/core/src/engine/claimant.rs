//! [`Claimant`]: a request on its way to a lease, and its state while it waits.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::backoff::Pace;
use super::request::Request;
use super::waiters::WaiterPermit;
use crate::claim::Claim;
use crate::clock::Tick;
use crate::event::Step;
use crate::wake::Wakeup;

/// A request in flight to a lease.
pub(super) struct Claimant<'a> {
    pub(super) engine: &'a Arc<Shared>,
    pub(super) request: &'a Request,
    pub(super) claim: Claim,
    /// When the first claim without an answer was sent: it may still win, and its lease would count
    /// from then (P30).
    pub(super) unanswered_since: Option<Tick>,
    /// Set while the caller waits for another's claim or run.
    pub(super) waiting: Option<Box<WaitState>>,
    /// Whether the recover hook may still be asked.
    pub(super) may_recover: bool,
}

/// The state of a caller that waits.
pub(super) struct WaitState {
    pub(super) permit: WaiterPermit,
    pub(super) began: Tick,
    pub(super) limit: Duration,
    /// The run that it waits for; `None` while it waits for a claim only.
    pub(super) run: Option<WatchedRun>,
}

/// Another caller's run, as a waiter sees it.
pub(super) struct WatchedRun {
    pub(super) began: Tick,
    pub(super) pace: Pace,
    pub(super) wakeup: Wakeup,
}

impl WaitState {
    /// When it began to wait for a run, if it does.
    pub(super) fn since(&self) -> Option<Tick> {
        self.run.as_ref().map(|run| run.began)
    }

    pub(super) fn left(&self, now: Tick) -> Duration {
        self.limit.saturating_sub(now.since(self.began))
    }
}

impl Claimant<'_> {
    pub(super) fn now(&self) -> Tick {
        self.engine.env.clock.now()
    }

    pub(super) fn emit(&self, step: Step) {
        self.engine.emit(&self.request.subject, step);
    }
}
