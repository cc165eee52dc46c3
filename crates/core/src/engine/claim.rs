//! Sends a claim to the store, coalesced with the other claims of this process for the same key
//! (single-flight).

use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{self, Either};

use super::backoff::Backoff;
use super::claimant::Claimant;
use super::coalesce::{ClaimFailure, ClaimOutcome, FollowerReply, JoinOutcome, Leader};
use super::response::Problem;
use crate::claim::Claimed;
use crate::clock::Tick;
use crate::error::{Certainty, StoreError};
use crate::event::{BreakerState, BusyReason, Step};
use crate::policy::{Mode, OnBusy};

/// How many times a claim without an answer is sent again before the caller gets an error.
const RESENDS: u32 = 2;

/// The retry delay suggested to a caller while the remaining time of the other run is unknown.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// The outcome of a claim and, if it won, the leader whose followers wait for it.
pub(super) struct ClaimResult {
    pub(super) outcome: ClaimOutcome,
    pub(super) leader: Option<Leader>,
}

impl ClaimResult {
    /// An outcome without followers.
    const fn without_leader(outcome: ClaimOutcome) -> Self {
        Self {
            outcome,
            leader: None,
        }
    }
}

impl Claimant<'_> {
    /// Gets the store's answer from a run of this process, from another caller's claim, or from a
    /// claim of its own. Returns a problem if the caller may not wait for another's claim, or has
    /// waited long enough (P34).
    pub(super) async fn claim_coalesced(&mut self, started: Tick) -> Result<ClaimResult, Problem> {
        // Observe mode runs the effect in any case. And after a claim without an answer, here or at
        // a caller that brought its own token, only that same token can find out whether it won
        // (P6).
        let may_hold = self.unanswered_since.is_some() || self.request.token.is_some();
        if self.request.policy.mode != Mode::Enforce || may_hold {
            let outcome = self.claim_with_retries(started).await;
            return Ok(ClaimResult::without_leader(outcome));
        }
        let (identity, fingerprint) = (self.claim.identity, self.claim.fingerprint);
        let coalescer = &self.engine.coalescer;
        match coalescer.join(identity, fingerprint, started, || self.become_waiter()) {
            JoinOutcome::Known(claimed) => Ok(ClaimResult::without_leader(Ok((claimed, started)))),
            JoinOutcome::Lead(leader) => Ok(self.claim_as_leader(leader, started).await),
            JoinOutcome::Refused(why) => Err(self.refuse_busy(why, UNKNOWN_WAIT)),
            // Boxed because it is rare: this keeps the future of most requests small.
            JoinOutcome::Follow(reply) => Box::pin(self.follow(reply)).await,
        }
    }

    /// Waits for the outcome of the leader's claim, for as long as this caller may wait.
    async fn follow(
        &mut self,
        reply: oneshot::Receiver<FollowerReply>,
    ) -> Result<ClaimResult, Problem> {
        let timer = self.engine.env.clock.sleep(self.left_to_wait());
        let reply = match future::select(reply, timer).await {
            Either::Left((reply, _)) => reply.unwrap_or(FollowerReply::ClaimAlone),
            Either::Right(_) => {
                let why = match self.request.policy.on_busy {
                    OnBusy::Wait(_) => BusyReason::WaitedTooLong,
                    OnBusy::Refuse => BusyReason::Policy,
                };
                return Err(self.refuse_busy(why, UNKNOWN_WAIT));
            }
        };
        let now = self.now();
        Ok(match reply {
            FollowerReply::Outcome(outcome) => ClaimResult::without_leader(outcome),
            FollowerReply::Lead(mut leader) => {
                leader.gather_followers();
                // The key had a record a moment ago: let the store read before it writes.
                self.claim.retry = true;
                self.claim_as_leader(leader, now).await
            }
            FollowerReply::ClaimAlone => {
                ClaimResult::without_leader(self.claim_with_retries(now).await)
            }
        })
    }

    async fn claim_as_leader(&mut self, leader: Leader, now: Tick) -> ClaimResult {
        let outcome = self.claim_with_retries(now).await;
        if let Ok((Claimed::Won(_), _)) = &outcome {
            let leader = Some(leader);
            return ClaimResult { outcome, leader };
        }
        leader.share(&outcome);
        ClaimResult::without_leader(outcome)
    }

    /// Sends the claim, and sends it again with the same token if no answer came (P28). Returns the
    /// answer and the time at which the answered claim was sent.
    async fn claim_with_retries(&mut self, mut sent: Tick) -> ClaimOutcome {
        let mut backoff = Backoff::new();
        let mut resends = 0;
        loop {
            self.pass_breaker(sent)?;
            let (engine, subject) = (self.engine, &self.request.subject);
            let result = engine.claim_sent_at(sent, subject, &self.claim);
            let error = match result.await {
                Ok(claimed) => {
                    self.report_breaker(self.engine.breaker.succeeded());
                    return Ok((claimed, sent));
                }
                Err(error) => error,
            };
            if error.certainty == Certainty::Unknown {
                self.unanswered_since.get_or_insert(sent);
            }
            if !error.is_transient() {
                // A rejection proves that the store is reachable: reset the breaker.
                self.report_breaker(self.engine.breaker.succeeded());
                return Err(claim_failure(error));
            }
            self.report_breaker(self.engine.breaker.failed(sent, self.now()));
            if resends == RESENDS {
                return Err(claim_failure(error));
            }
            resends += 1;
            self.engine.env.clock.sleep(backoff.next_pause()).await;
            sent = self.now();
        }
    }

    fn pass_breaker(&self, now: Tick) -> Result<(), ClaimFailure> {
        let admitted = self.engine.breaker.admit(now);
        let changed = admitted.map_err(|retry_after| {
            self.emit(Step::BreakerRejected);
            ClaimFailure {
                source: None,
                retry_after,
            }
        })?;
        self.report_breaker(changed);
        Ok(())
    }

    fn report_breaker(&self, changed: Option<BreakerState>) {
        if let Some(state) = changed {
            let (failures, threshold) = self.engine.breaker.failures();
            self.emit(Step::Breaker {
                state,
                failures,
                threshold,
            });
        }
    }
}

fn claim_failure(error: StoreError) -> ClaimFailure {
    ClaimFailure {
        source: Some(error),
        retry_after: Duration::from_secs(1),
    }
}
