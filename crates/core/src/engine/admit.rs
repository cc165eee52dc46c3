//! From request to lease, or to an answer that needs no run: claim, wait, recover.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};

use super::Shared;
use super::answer::{Problem, Replayed};
use super::cache::Local;
use super::limit::{Backoff, within};
use super::request::{Doubt, Request};
use super::waiters::Place;
use crate::claim::{Busy, Claim, Claimed, Grant, InDoubt, Replay};
use crate::clock::Tick;
use crate::error::{Certainty, StoreError, StoreErrorKind};
use crate::event::{BusyReason, Step, StoreCall, Would};
use crate::policy::{Mode, OnBusy, StoreDown};
use crate::record::Token;
use crate::store::Wake;
use crate::wake::Wakeup;

/// Whether the effect may run.
pub(super) enum Admission {
    /// It may, under this lease.
    Won(Won),
    /// It may, unprotected.
    Unprotected,
    /// It may not: here is the answer.
    Replayed(Replayed),
    /// It may not: there is no answer.
    Problem(Problem),
}

/// A lease, and the two moments that its owner needs to know.
pub(super) struct Won {
    pub(super) grant: Grant,
    /// When the claim that won was first sent: the deadline counts from then (P30).
    pub(super) sent: Tick,
    /// When the answer came.
    pub(super) now: Tick,
}

/// How often a claim without an answer is sent again before giving up.
const RESENDS: u32 = 2;

/// One request on its way to a lease.
struct Asker<'a> {
    engine: &'a Arc<Shared>,
    request: &'a Request,
    claim: Claim,
    // Set once a claim got no answer: it may yet land, and its lease would count from then (P30).
    unanswered_since: Option<Tick>,
    may_recover: bool,
}

/// A caller that waits for another's run.
struct Waiting {
    _place: Place,
    began: Tick,
    limit: Duration,
    backoff: Backoff,
    wakeup: Wakeup,
}

/// Claims, and waits or recovers as the policy says, until there is something to do or to say.
pub(super) async fn admit(engine: &Arc<Shared>, request: &Request) -> Admission {
    if request.policy.mode == Mode::Off {
        return Admission::Unprotected;
    }
    let began = engine.env.clock.now();
    if let Some(admission) = from_cache(engine, request, began) {
        return admission;
    }
    let made = || Token(engine.env.entropy.next_u128());
    let token = request.token.as_deref().copied().unwrap_or_else(made);
    let claim = match request.claim(&engine.secret, token) {
        Ok(claim) => claim,
        Err(error) => return Admission::Problem(error.into()),
    };
    let mut asker = Asker {
        engine,
        request,
        claim,
        unanswered_since: None,
        may_recover: true,
    };
    asker.ask(began).await
}

fn from_cache(engine: &Shared, request: &Request, now: Tick) -> Option<Admission> {
    if request.policy.mode != Mode::Enforce {
        return None;
    }
    match engine
        .cache
        .get(&request.subject.identity, &request.fingerprint, now)
    {
        Local::Nothing => None,
        Local::Mismatch => {
            engine.emit(&request.subject, Step::Mismatched);
            Some(Admission::Problem(Problem::Mismatch))
        }
        Local::Replay(replay, number) => {
            let (state, number) = (replay.state, Some(number));
            engine.emit(
                &request.subject,
                Step::Replayed {
                    state,
                    local: true,
                    number,
                },
            );
            Some(Admission::Replayed(Replayed { replay, number }))
        }
    }
}

impl Asker<'_> {
    async fn ask(&mut self, began: Tick) -> Admission {
        let mut waiting: Option<Box<Waiting>> = None;
        let admission = self.ask_until_answered(began, &mut waiting).await;
        if let Some(waiting) = waiting {
            self.emit(Step::WaitEnded {
                waited: self.now().since(waiting.began),
            });
        }
        admission
    }

    async fn ask_until_answered(
        &mut self,
        began: Tick,
        waiting: &mut Option<Box<Waiting>>,
    ) -> Admission {
        let mut asked = began;
        loop {
            let (claimed, sent) = match self.claim_once(asked).await {
                Ok(answered) => answered,
                Err(problem) => return self.no_answer(problem),
            };
            if self.request.policy.mode == Mode::Observe {
                return self.observe(claimed, sent);
            }
            match claimed {
                Claimed::Won(grant) => return self.won(grant, sent, began),
                Claimed::Replay(replay) => return self.replay(replay, sent),
                Claimed::Mismatch => return self.mismatch(),
                // Boxed, as both are rare: the way of most requests stays small.
                Claimed::InDoubt(doubt) => match Box::pin(self.recover(doubt)).await {
                    Some(problem) => return Admission::Problem(problem),
                    None => asked = self.ask_again(),
                },
                Claimed::Busy(busy) => match Box::pin(self.wait(waiting, busy)).await {
                    Some(problem) => return Admission::Problem(problem),
                    None => asked = self.ask_again(),
                },
            }
        }
    }

    /// There is a record by now: let the store look first.
    fn ask_again(&mut self) -> Tick {
        self.claim.retry = true;
        self.now()
    }

    fn now(&self) -> Tick {
        self.engine.env.clock.now()
    }

    fn emit(&self, step: Step) {
        self.engine.emit(&self.request.subject, step);
    }

    fn won(&self, grant: Grant, sent: Tick, began: Tick) -> Admission {
        let now = self.now();
        let took = now.since(began);
        self.emit(Step::Claimed {
            fence: grant.fence,
            attempt: grant.attempt,
            took,
        });
        Admission::Won(Won {
            grant,
            sent: self.unanswered_since.unwrap_or(sent),
            now,
        })
    }

    fn replay(&self, replay: Replay, asked: Tick) -> Admission {
        let (identity, fingerprint) = (self.claim.identity, self.claim.fingerprint);
        let number = self.engine.cache.put(identity, fingerprint, &replay, asked);
        self.emit(Step::Replayed {
            state: replay.state,
            local: false,
            number,
        });
        Admission::Replayed(Replayed { replay, number })
    }

    fn mismatch(&self) -> Admission {
        self.emit(Step::Mismatched);
        Admission::Problem(Problem::Mismatch)
    }

    fn observe(&self, claimed: Claimed, sent: Tick) -> Admission {
        let would = match claimed {
            Claimed::Won(grant) => return self.won(grant, sent, sent),
            Claimed::Replay(_) => Would::Replay,
            Claimed::Busy(_) => Would::Busy,
            Claimed::Mismatch => Would::Mismatch,
            Claimed::InDoubt(_) => Would::InDoubt,
        };
        self.emit(Step::Observed { would });
        Admission::Unprotected
    }

    fn no_answer(&self, problem: Problem) -> Admission {
        match (self.request.policy.mode, self.request.policy.store_down) {
            (Mode::Observe, _) => {
                self.emit(Step::Observed {
                    would: Would::Unavailable,
                });
                Admission::Unprotected
            }
            // A record that is there and can't be read is an answer: the key is not free (P25).
            (_, StoreDown::Open) if !is_unreadable(&problem) => {
                self.emit(Step::FailedOpen);
                Admission::Unprotected
            }
            _ => Admission::Problem(problem),
        }
    }

    /// Sends the claim, and sends it again, with the same token, where no answer came (P28).
    /// Answers with when the one that was answered was sent.
    async fn claim_once(&mut self, mut sent: Tick) -> Result<(Claimed, Tick), Problem> {
        let mut backoff = Backoff::new();
        let mut resends = 0;
        loop {
            self.pass_breaker(sent)?;
            let clock = &*self.engine.env.clock;
            let call = self.engine.store.claim(&self.claim);
            let error = match within(clock, self.engine.config.call_limit, call).await {
                Ok(claimed) => {
                    self.report_breaker(self.engine.breaker.succeeded());
                    return Ok((claimed, sent));
                }
                Err(error) => error,
            };
            self.engine
                .store_failed(&self.request.subject, StoreCall::Claim, &error);
            if error.certainty == Certainty::Unknown {
                self.unanswered_since.get_or_insert(sent);
            }
            if !error.is_transient() {
                return Err(unavailable(Some(error), Duration::from_secs(1)));
            }
            self.report_breaker(self.engine.breaker.failed(self.now()));
            if resends == RESENDS {
                return Err(unavailable(Some(error), Duration::from_secs(1)));
            }
            resends += 1;
            clock.sleep(backoff.next_pause()).await;
            sent = self.now();
        }
    }

    fn pass_breaker(&self, now: Tick) -> Result<(), Problem> {
        let admitted = self.engine.breaker.admit(now);
        let changed = admitted.map_err(|retry_after| unavailable(None, retry_after))?;
        self.report_breaker(changed);
        Ok(())
    }

    fn report_breaker(&self, changed: Option<crate::event::BreakerState>) {
        if let Some(state) = changed {
            self.emit(Step::Breaker { state });
        }
    }

    /// Asks the recover hook, once; `None` means that the doubt is ended and the claim is worth
    /// making again (P40).
    async fn recover(&mut self, doubt: InDoubt) -> Option<Problem> {
        let fence = doubt.fence;
        self.emit(Step::InDoubt { fence });
        let hook = self.request.recover.as_ref().filter(|_| self.may_recover);
        let Some(hook) = hook.map(Arc::clone) else {
            return Some(Problem::InDoubt(doubt));
        };
        self.may_recover = false;
        let identity = self.claim.identity;
        let case = Doubt {
            identity,
            secret: self.engine.secret.clone(),
            doubt: doubt.clone(),
        };
        let found = hook(case).await;
        self.emit(Step::Recovered {
            fence,
            known: found.is_some(),
        });
        let Some(resolution) = found else {
            return Some(Problem::InDoubt(doubt));
        };
        let call = self.engine.store.resolve(&identity, fence, &resolution);
        match within(&*self.engine.env.clock, self.engine.config.call_limit, call).await {
            // Done, or somebody else ended the doubt: either way the record has moved on.
            Ok(_) => None,
            Err(error) => {
                self.engine
                    .store_failed(&self.request.subject, StoreCall::Resolve, &error);
                Some(Problem::InDoubt(doubt))
            }
        }
    }

    /// Waits a while; `None` means that the claim is worth making again (P34).
    async fn wait(&self, waiting: &mut Option<Box<Waiting>>, busy: Busy) -> Option<Problem> {
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

fn is_unreadable(problem: &Problem) -> bool {
    let Problem::Unavailable {
        source: Some(error),
        ..
    } = problem
    else {
        return false;
    };
    error.kind == StoreErrorKind::Record
}

fn unavailable(source: Option<StoreError>, retry_after: Duration) -> Problem {
    Problem::Unavailable {
        source,
        retry_after,
    }
}
