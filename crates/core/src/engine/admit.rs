//! From request to lease, or to an answer that needs no run: claim, wait, recover.

use std::sync::Arc;

use super::Shared;
use super::answer::{Problem, Replayed};
use super::ask::Asked;
use super::cache::Local;
use super::given_up::release_later;
use super::request::{Doubt, Request};
use super::turns::{Turn, Unanswered};
use super::wait::Waiting;
use crate::claim::{Claim, Claimed, Grant, InDoubt, Replay};
use crate::clock::Tick;
use crate::event::{Step, StoreCall, Would};
use crate::policy::{Mode, StoreDown};
use crate::record::{State, Token};
use crate::store::within;

/// Whether the effect may run.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one: boxing it would cost every run an allocation"
)]
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
    /// For those who asked meanwhile, where anybody may have.
    pub(super) turn: Option<Turn>,
}

/// One request on its way to a lease.
pub(super) struct Asker<'a> {
    pub(super) engine: &'a Arc<Shared>,
    pub(super) request: &'a Request,
    pub(super) claim: Claim,
    // Set once a claim got no answer: it may yet land, and its lease would count from then (P30).
    pub(super) unanswered_since: Option<Tick>,
    /// Set once it waits, for another's claim or for another's run.
    pub(super) waiting: Option<Box<Waiting>>,
    may_recover: bool,
}

/// Claims, and waits or recovers as the policy says, until there is something to do or to say.
pub(super) async fn admit(engine: &Arc<Shared>, request: &Request, began: Tick) -> Admission {
    if request.policy.mode == Mode::Off {
        return Admission::Unprotected;
    }
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
        waiting: None,
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
        let admission = self.ask_until_answered(began).await;
        if let Some(since) = self.waiting.as_ref().and_then(|waiting| waiting.since()) {
            let waited = self.now().since(since);
            self.emit(Step::WaitEnded { waited });
        }
        admission
    }

    async fn ask_until_answered(&mut self, began: Tick) -> Admission {
        let mut asked = began;
        loop {
            let Asked { answered, turn } = match self.claimed(asked).await {
                Ok(asked) => asked,
                Err(problem) => return Admission::Problem(problem),
            };
            let (claimed, sent) = match answered {
                Ok(answer) => answer,
                Err(unanswered) => return self.no_answer(unanswered),
            };
            if self.request.policy.mode == Mode::Observe {
                return self.observe(claimed, sent);
            }
            match claimed {
                Claimed::Won(grant) => return self.won(grant, sent, began, turn),
                Claimed::Replay(replay) => return self.replay(replay, sent),
                Claimed::Mismatch => return self.mismatch(),
                // Boxed, as both are rare: the way of most requests stays small.
                Claimed::InDoubt(doubt) => match Box::pin(self.recover(doubt)).await {
                    Some(problem) => return Admission::Problem(problem),
                    None => asked = self.ask_again(),
                },
                Claimed::Busy(busy) => match Box::pin(self.wait(busy)).await {
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

    pub(super) fn now(&self) -> Tick {
        self.engine.env.clock.now()
    }

    pub(super) fn emit(&self, step: Step) {
        self.engine.emit(&self.request.subject, step);
    }

    fn won(&self, grant: Grant, sent: Tick, began: Tick, turn: Option<Turn>) -> Admission {
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
            turn,
        })
    }

    fn replay(&self, replay: Replay, asked: Tick) -> Admission {
        let (identity, fingerprint) = (self.claim.identity, self.claim.fingerprint);
        let number = match self.request.keeps_failures || replay.state == State::Completed {
            true => self.engine.cache.put(identity, fingerprint, &replay, asked),
            false => None,
        };
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
            Claimed::Won(grant) => return self.won(grant, sent, sent, None),
            Claimed::Replay(_) => Would::Replay,
            Claimed::Busy(_) => Would::Busy,
            Claimed::Mismatch => Would::Mismatch,
            Claimed::InDoubt(_) => Would::InDoubt,
        };
        self.emit(Step::Observed { would });
        Admission::Unprotected
    }

    fn no_answer(&self, unanswered: Unanswered) -> Admission {
        let is_there = unanswered.is_about_a_record();
        let Unanswered {
            source,
            retry_after,
        } = unanswered;
        match (self.request.policy.mode, self.request.policy.store_down) {
            (Mode::Observe, _) => {
                self.emit(Step::Observed {
                    would: Would::Unavailable,
                });
                Admission::Unprotected
            }
            (_, StoreDown::Open) if !is_there => {
                self.emit(Step::FailedOpen);
                Admission::Unprotected
            }
            _ => {
                // Not where the caller brought the token, and may send the same claim again (P6). And a transaction that is
                // not committed leaves nothing.
                let may_let_go = self.request.token.is_none() && !self.engine.commits;
                if self.unanswered_since.is_some() && may_let_go {
                    release_later(self.engine, self.request, &self.claim);
                }
                Admission::Problem(Problem::of_store(source, retry_after))
            }
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
        let sent = self.engine.tick();
        let call = self.engine.store.resolve(&identity, fence, &resolution);
        let answer = within(&*self.engine.env.clock, self.engine.config.call_limit, call).await;
        let subject = &self.request.subject;
        self.engine
            .called(subject, StoreCall::Resolve, sent, answer.is_ok());
        match answer {
            // Done, or somebody else ended the doubt: either way the record has moved on.
            Ok(_) => None,
            Err(error) => {
                self.engine
                    .store_failed(&self.request.subject, StoreCall::Resolve, &error);
                Some(Problem::InDoubt(doubt))
            }
        }
    }
}
