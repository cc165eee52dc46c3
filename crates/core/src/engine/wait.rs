//! Waiting for another's claim, and for another's run (P34).

use std::time::Duration;

use futures_util::future::{self, Either};

use super::backoff::Pace;
use super::claimant::{Claimant, WaitState, WatchedRun};
use super::response::Problem;
use super::waiters::Tenant;
use crate::claim::Busy;
use crate::event::{BusyReason, Step};
use crate::policy::OnBusy;
use crate::store::Wake;

impl Claimant<'_> {
    /// Becomes a waiter, unless it is one already. A caller that refuses to wait for a run still
    /// waits for another's claim to learn about the run, for at most the time of one store call.
    pub(super) fn become_waiter(&mut self) -> Result<(), BusyReason> {
        if self.waiting.is_some() {
            return Ok(());
        }
        let limit = match self.request.policy.on_busy {
            OnBusy::Wait(limit) => limit,
            OnBusy::Refuse => self.engine.config.call_limit,
        };
        let address = self.claim.identity.address();
        let most = self.request.policy.max_waiters_per_key;
        let tenant = Tenant::from_namespace(&self.request.subject.namespace);
        let entered = self.engine.waiters.enter(address, tenant, most);
        let permit = entered.map_err(|why| match self.request.policy.on_busy {
            OnBusy::Wait(_) => why,
            // It would not have waited for a run either, so the number of waiters is not the
            // reason.
            OnBusy::Refuse => BusyReason::Policy,
        })?;
        self.waiting = Some(Box::new(WaitState {
            permit,
            began: self.now(),
            limit,
            run: None,
        }));
        Ok(())
    }

    /// How long this caller may still wait.
    pub(super) fn left_to_wait(&self) -> Duration {
        let now = self.now();
        self.waiting
            .as_ref()
            .map_or(Duration::ZERO, |waiting| waiting.left(now))
    }

    /// Waits until the run may have ended. `None` means that the claim should be sent again.
    pub(super) async fn wait(&mut self, busy: Busy) -> Option<Problem> {
        if self.request.policy.on_busy == OnBusy::Refuse {
            return Some(self.refuse_busy(BusyReason::Policy, busy.retry_after));
        }
        if let Err(why) = self.become_waiter() {
            return Some(self.refuse_busy(why, busy.retry_after));
        }
        if self.begin_to_watch() {
            // A settlement before the watch began was not seen, so claim once more.
            return None;
        }
        let mut left = self.left_to_wait();
        let run = self
            .waiting
            .as_mut()
            .and_then(|waiting| waiting.run.as_mut());
        if let Some(pause) = run.and_then(|run| run.pace.pause_after_waking()) {
            self.engine.env.clock.sleep(pause.min(left)).await;
            left = self.left_to_wait();
        }
        if left.is_zero() {
            return Some(self.refuse_busy(BusyReason::WaitedTooLong, busy.retry_after));
        }
        self.wait_for_run(busy, left).await;
        None
    }

    /// Begins to watch the record. Returns whether that began just now.
    fn begin_to_watch(&mut self) -> bool {
        let now = self.now();
        let waiting = self
            .waiting
            .as_mut()
            .filter(|waiting| waiting.run.is_none());
        let Some(waiting) = waiting else { return false };
        waiting.run = Some(WatchedRun {
            began: now,
            pace: Pace::new(),
            wakeup: self.engine.store.watch(&self.claim.identity),
        });
        let position = waiting.permit.position();
        self.emit(Step::WaitBegan { position });
        true
    }

    async fn wait_for_run(&mut self, busy: Busy, left: Duration) {
        let engine = self.engine;
        let run = self
            .waiting
            .as_mut()
            .and_then(|waiting| waiting.run.as_mut());
        let Some(run) = run else { return };
        // Unless woken, claim again once the lease can have lapsed, rounded up past the store's
        // clock resolution.
        let lapse = busy.retry_after + Duration::from_millis(1);
        let pause = match engine.store.capabilities().wake {
            Wake::Exact => lapse,
            Wake::Hint | Wake::Never => lapse.min(run.pace.pause_between_looks()),
        };
        let timer = engine.env.clock.sleep(pause.min(left));
        let woken = future::select(&mut run.wakeup, timer).await;
        if matches!(woken, Either::Left(_)) {
            run.pace.woken();
            run.wakeup = engine.store.watch(&self.claim.identity);
        }
    }

    /// Reports that the caller doesn't wait, or no longer, and returns the problem for it.
    pub(super) fn refuse_busy(&self, why: BusyReason, retry_after: Duration) -> Problem {
        let waiting = self.waiting.as_ref();
        let waited = waiting.map(|waiting| self.now().since(waiting.began));
        let limit = match self.request.policy.on_busy {
            OnBusy::Wait(limit) => limit,
            OnBusy::Refuse => Duration::ZERO,
        };
        self.emit(Step::Busy {
            why,
            waited: waited.unwrap_or_default(),
            limit,
        });
        Problem::Busy { why, retry_after }
    }
}
