//! Admission: takes a request to its lease, or to an answer without a run. Claims, waits and
//! recovers.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::admission::{Admission, Won};
use super::apart::{self, AnswerLife, FoundAnswer};
use super::cache::CacheLookup;
use super::claim::ClaimResult;
use super::claimant::Claimant;
use super::coalesce::{ClaimFailure, Leader};
use super::orphan::release_later;
use super::request::{Doubt, Request};
use super::response::{Problem, Replayed};
use crate::claim::{Claimed, Grant, InDoubt, Mismatch, Replay, Resolution, Settlement};
use crate::clock::Tick;
use crate::event::{ShadowDecision, Step, StoreCall};
use crate::policy::{Mode, StoreDown};
use crate::record::{Fence, State, Token};
use crate::store::StoreResult;

/// Claims the key, and waits or recovers as the policy says, until the effect may run or the caller
/// gets an answer.
pub(super) async fn admit(engine: &Arc<Shared>, request: &Request, began: Tick) -> Admission<Won> {
    if request.policy.mode == Mode::Off {
        return Admission::Unprotected;
    }
    if let Some(admission) = admit_from_cache(engine, request, began) {
        return admission;
    }
    let random = || Token(engine.env.entropy.next_u128());
    let token = request.token.as_deref().copied().unwrap_or_else(random);
    let claim = match request.claim(&engine.secret, token) {
        Ok(claim) => claim,
        Err(error) => return Admission::Problem(error.into()),
    };
    let mut claimant = Claimant {
        engine,
        request,
        claim,
        unanswered_since: None,
        waiting: None,
        may_recover: true,
    };
    let admission = claimant.claim_until_admitted(began).await;
    claimant.report_wait();
    admission
}

fn admit_from_cache(engine: &Shared, request: &Request, now: Tick) -> Option<Admission<Won>> {
    if request.policy.mode != Mode::Enforce {
        return None;
    }
    match engine
        .cache
        .get(&request.subject.identity, &request.fingerprint, now)
    {
        CacheLookup::Nothing => None,
        CacheLookup::Mismatch(original) => {
            let (step, problem) = request.refuse_other_payload(original);
            engine.emit(&request.subject, step);
            Some(Admission::Problem(problem))
        }
        CacheLookup::Replay(replay, number) => {
            let (state, number) = (replay.state, Some(number));
            engine.emit(
                &request.subject,
                Step::Replayed {
                    state,
                    local: true,
                    number,
                    requested_at: replay.requested_at,
                },
            );
            Some(Admission::Replayed(Replayed { replay, number }))
        }
    }
}

impl Claimant<'_> {
    fn report_wait(&self) {
        if let Some(waiting) = &self.waiting
            && let Some(since) = waiting.since()
        {
            let waited = self.now().since(since);
            let position = waiting.permit.position();
            self.emit(Step::WaitEnded { waited, position });
        }
    }

    async fn claim_until_admitted(&mut self, began: Tick) -> Admission<Won> {
        let mut started = began;
        loop {
            let ClaimResult { outcome, leader } = match self.claim_coalesced(started).await {
                Ok(result) => result,
                Err(problem) => return Admission::Problem(problem),
            };
            let (claimed, sent) = match outcome {
                Ok(answer) => answer,
                Err(failure) => return self.admit_without_answer(failure),
            };
            if self.request.policy.mode == Mode::Observe {
                return self.observe(claimed, sent);
            }
            match claimed {
                Claimed::Won(grant) => return self.won(grant, sent, began, leader),
                // Boxed because it is rare: this keeps the future of most requests small.
                Claimed::Replay(replay) if apart::is_apart(&replay.answer) => {
                    return Box::pin(self.replay_from_apart(replay, sent)).await;
                }
                Claimed::Replay(replay) => return self.replay(replay, sent),
                Claimed::Mismatch(original) => return self.mismatch(original),
                // Boxed because both are rare: this keeps the future of most requests small.
                Claimed::InDoubt(doubt) => match Box::pin(self.recover(doubt)).await {
                    Some(problem) => return Admission::Problem(problem),
                    None => started = self.prepare_retry(),
                },
                Claimed::Busy(busy) => match Box::pin(self.wait(busy)).await {
                    Some(problem) => return Admission::Problem(problem),
                    None => started = self.prepare_retry(),
                },
            }
        }
    }

    /// Marks the next claim as a retry, so that the store reads before it writes: a record exists
    /// by now.
    fn prepare_retry(&mut self) -> Tick {
        self.claim.retry = true;
        self.now()
    }

    #[inline]
    fn won(&self, grant: Grant, sent: Tick, began: Tick, leader: Option<Leader>) -> Admission<Won> {
        let now = self.now();
        let took = now.since(began);
        self.emit(Step::Claimed {
            fence: grant.fence,
            attempt: grant.attempt,
            took,
            retention: self.claim.terms.retention(),
        });
        Admission::Won(Won {
            grant,
            sent: self.unanswered_since.unwrap_or(sent),
            now,
            leader,
        })
    }

    /// Replays an answer that lives shorter than its record (P50).
    async fn replay_from_apart(&self, replay: Replay, asked: Tick) -> Admission<Won> {
        let subject = &self.request.subject;
        match apart::find(self.engine, subject, &replay.answer).await {
            Ok(FoundAnswer::Kept(answer)) => self.replay(Replay { answer, ..replay }, asked),
            Ok(FoundAnswer::Gone) => Admission::Problem(Problem::AnswerExpired),
            Err(error) => {
                let retry_after = Duration::from_secs(1);
                Admission::Problem(Problem::from_store_error(Some(error), retry_after))
            }
        }
    }

    fn replay(&self, replay: Replay, asked: Tick) -> Admission<Won> {
        let (identity, fingerprint) = (self.claim.identity, self.claim.fingerprint);
        let number = match self.request.keeps_failures || replay.state == State::Completed {
            true => self.engine.cache.put(identity, fingerprint, &replay, asked),
            false => None,
        };
        self.emit(Step::Replayed {
            state: replay.state,
            local: false,
            number,
            requested_at: replay.requested_at,
        });
        Admission::Replayed(Replayed { replay, number })
    }

    fn mismatch(&self, original: Mismatch) -> Admission<Won> {
        let (step, problem) = self.request.refuse_other_payload(original);
        self.emit(step);
        Admission::Problem(problem)
    }

    fn observe(&self, claimed: Claimed, sent: Tick) -> Admission<Won> {
        let decision = match claimed {
            Claimed::Won(grant) => return self.won(grant, sent, sent, None),
            Claimed::Replay(_) => ShadowDecision::Replay,
            Claimed::Busy(_) => ShadowDecision::Busy,
            Claimed::Mismatch(_) if self.request.holds_variants => ShadowDecision::Held,
            Claimed::Mismatch(_) => ShadowDecision::Mismatch,
            Claimed::InDoubt(_) => ShadowDecision::InDoubt,
        };
        self.emit(Step::Observed { decision });
        Admission::Unprotected
    }

    /// Decides for a claim that got no answer: fail closed, fail open, or run as observe mode does.
    fn admit_without_answer(&self, failure: ClaimFailure) -> Admission<Won> {
        let has_record = failure.is_about_a_record();
        let ClaimFailure {
            source,
            retry_after,
        } = failure;
        match (self.request.policy.mode, self.request.policy.store_down) {
            (Mode::Observe, _) => {
                self.emit(Step::Observed {
                    decision: ShadowDecision::Unavailable,
                });
                Admission::Unprotected
            }
            (_, StoreDown::Open) if !has_record => {
                self.emit(Step::FailedOpen);
                Admission::Unprotected
            }
            _ => {
                // A caller that brought its own token may send the same claim again (P6), and an
                // uncommitted transaction leaves no record: nothing is released in either case.
                let may_release = self.request.token.is_none() && !self.engine.commits;
                if self.unanswered_since.is_some() && may_release {
                    release_later(self.engine, self.request, &self.claim);
                }
                Admission::Problem(Problem::from_store_error(source, retry_after))
            }
        }
    }

    /// Asks the recover hook, once per request. `None` means that the doubt has ended, so the claim
    /// should be sent again (P40).
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
        let (engine, subject) = (self.engine, &self.request.subject);
        let Ok(resolution) = self.kept_apart(fence, resolution).await else {
            return Some(Problem::InDoubt(doubt));
        };
        let call = engine.store.resolve(&identity, fence, &resolution);
        match engine.call(subject, StoreCall::Resolve, call).await {
            // Resolved here, or somebody else ended the doubt: in both cases the record has
            // changed.
            Ok(_) => None,
            Err(_) => Some(Problem::InDoubt(doubt)),
        }
    }

    /// The resolution, with its answer kept apart if that lives shorter than the record (P50).
    async fn kept_apart(&self, fence: Fence, found: Resolution) -> StoreResult<Resolution> {
        let engine = self.engine;
        let life = AnswerLife::from_request(self.request).filter(|_| !engine.commits);
        let Some(life) = life else { return Ok(found) };
        let (subject, settlement) = (&self.request.subject, found.clone().into());
        let apart = life.keep_apart(engine, subject, fence, &settlement).await?;
        Ok(match apart {
            Some(Settlement::Complete(mark)) => Resolution::Complete(mark),
            Some(Settlement::Fail(mark)) => Resolution::Fail(mark),
            _ => found,
        })
    }
}
