//! Waiting for another's run (P34).

use std::time::Duration;

use futures_util::future::{self, Either};

use super::admit::Asker;
use super::answer::Problem;
use super::limit::Backoff;
use super::waiters::Place;
use crate::claim::Busy;
use crate::clock::Tick;
use crate::event::{BusyReason, Step};
use crate::policy::OnBusy;
use crate::store::Wake;
use crate::wake::Wakeup;

/// A caller that waits for another's run.
pub(super) struct Waiting {
    _place: Place,
    pub(super) began: Tick,
    limit: Duration,
    backoff: Backoff,
    wakeup: Wakeup,
}

impl Asker<'_> {
    /// Waits a while; `None` means that the claim is worth making again (P34).
    pub(super) async fn wait(
        &self,
        waiting: &mut Option<Box<Waiting>>,
        busy: Busy,
    ) -> Option<Problem> {
        let Some(now_waiting) = waiting else {
            return match self.begin_to_wait() {
                // Watching has only just begun: what was settled before that was not seen. Ask again.
                Ok(begun) => {
                    *waiting = Some(Box::new(begun));
                    None
                }
                Err(why) => Some(self.give_up(why, busy)),
            };
        };
        let left = now_waiting
            .limit
            .saturating_sub(self.now().since(now_waiting.began));
        if left.is_zero() {
            return Some(self.give_up(BusyReason::WaitedTooLong, busy));
        }
        // Not before the lease can have lapsed, unless woken; rounded up past the store's grain.
        let lapse = busy.retry_after + Duration::from_millis(1);
        let pause = match self.engine.store.capabilities().wake {
            Wake::Exact => lapse,
            Wake::Hint | Wake::Never => lapse.min(now_waiting.backoff.next_pause()),
        };
        let timer = self.engine.env.clock.sleep(pause.min(left));
        let woken = future::select(&mut now_waiting.wakeup, timer).await;
        if matches!(woken, Either::Left(_)) {
            now_waiting.wakeup = self.engine.store.watch(&self.claim.identity);
        }
        None
    }

    fn begin_to_wait(&self) -> Result<Waiting, BusyReason> {
        let OnBusy::Wait(limit) = self.request.policy.on_busy else {
            return Err(BusyReason::Policy);
        };
        let address = self.claim.identity.address();
        let most = self.request.policy.max_waiters_per_key;
        let place = self.engine.waiters.enter(address, most)?;
        self.emit(Step::WaitBegan);
        Ok(Waiting {
            _place: place,
            began: self.now(),
            limit,
            backoff: Backoff::new(),
            wakeup: self.engine.store.watch(&self.claim.identity),
        })
    }

    fn give_up(&self, why: BusyReason, busy: Busy) -> Problem {
        self.emit(Step::Busy { why });
        Problem::Busy {
            why,
            retry_after: busy.retry_after,
        }
    }
}
