//! Waiting for another's claim, and for another's run (P34).

use std::time::Duration;

use futures_util::future::{self, Either};

use super::admit::Asker;
use super::answer::Problem;
use super::limit::Pace;
use super::waiters::{Place, Tenant};
use crate::claim::Busy;
use crate::clock::Tick;
use crate::event::{BusyReason, Step};
use crate::policy::OnBusy;
use crate::store::Wake;
use crate::wake::Wakeup;

/// A tenant that waits.
pub(super) struct Waiting {
    _place: Place,
    began: Tick,
    limit: Duration,
    /// For the end of another's run; `None` as long as it waited for a claim only.
    run: Option<Watched>,
}

/// Another's run, as a waiter sees it.
struct Watched {
    began: Tick,
    pace: Pace,
    wakeup: Wakeup,
}

impl Waiting {
    /// Since when it waits for a run, if it does.
    pub(super) fn since(&self) -> Option<Tick> {
        self.run.as_ref().map(|run| run.began)
    }

    fn left(&self, now: Tick) -> Duration {
        self.limit.saturating_sub(now.since(self.began))
    }
}

impl Asker<'_> {
    /// Becomes a waiter, where it isn't one yet. Also one that may not wait for a run may need another's claim to learn
    /// that there is one: it is held no longer than a store call may take.
    pub(super) fn take_place(&mut self) -> Result<(), BusyReason> {
        if self.waiting.is_some() {
            return Ok(());
        }
        let limit = match self.request.policy.on_busy {
            OnBusy::Wait(limit) => limit,
            OnBusy::Refuse => self.engine.config.call_limit,
        };
        let address = self.claim.identity.address();
        let most = self.request.policy.max_waiters_per_key;
        let tenant = Tenant::of(&self.request.subject.namespace);
        let entered = self.engine.waiters.enter(address, tenant, most);
        let place = entered.map_err(|why| match self.request.policy.on_busy {
            OnBusy::Wait(_) => why,
            // It would not have waited for a run either: the number of waiters is nothing to it.
            OnBusy::Refuse => BusyReason::Policy,
        })?;
        self.waiting = Some(Box::new(Waiting {
            _place: place,
            began: self.now(),
            limit,
            run: None,
        }));
        Ok(())
    }

    /// How long this tenant may still wait.
    pub(super) fn left_to_wait(&self) -> Duration {
        let now = self.now();
        self.waiting
            .as_ref()
            .map_or(Duration::ZERO, |waiting| waiting.left(now))
    }

    /// Waits a while; `None` means that the claim is worth making again.
    pub(super) async fn wait(&mut self, busy: Busy) -> Option<Problem> {
        if self.request.policy.on_busy == OnBusy::Refuse {
            return Some(self.give_up(BusyReason::Policy, busy.retry_after));
        }
        if let Err(why) = self.take_place() {
            return Some(self.give_up(why, busy.retry_after));
        }
        if self.begin_to_watch() {
            // What was settled before that was not seen. Ask again.
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
            return Some(self.give_up(BusyReason::WaitedTooLong, busy.retry_after));
        }
        self.wait_for_the_run(busy, left).await;
        None
    }

    /// Whether it has only just begun.
    fn begin_to_watch(&mut self) -> bool {
        let now = self.now();
        let waiting = self
            .waiting
            .as_mut()
            .filter(|waiting| waiting.run.is_none());
        let Some(waiting) = waiting else { return false };
        waiting.run = Some(Watched {
            began: now,
            pace: Pace::new(),
            wakeup: self.engine.store.watch(&self.claim.identity),
        });
        self.emit(Step::WaitBegan);
        true
    }

    async fn wait_for_the_run(&mut self, busy: Busy, left: Duration) {
        let engine = self.engine;
        let run = self
            .waiting
            .as_mut()
            .and_then(|waiting| waiting.run.as_mut());
        let Some(run) = run else { return };
        // Not before the lease can have lapsed, unless woken; rounded up past the store's grain.
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

    pub(super) fn give_up(&self, why: BusyReason, retry_after: Duration) -> Problem {
        self.emit(Step::Busy { why });
        Problem::Busy { why, retry_after }
    }
}
