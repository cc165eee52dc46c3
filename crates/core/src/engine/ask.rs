//! Asking the store for a lease, once for all who ask for the same key at the same time.

use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{self, Either};

use super::admit::Asker;
use super::answer::Problem;
use super::limit::Backoff;
use super::turns::{Answered, Entry, Heard, Turn, Unanswered};
use crate::claim::Claimed;
use crate::clock::Tick;
use crate::error::{Certainty, StoreError};
use crate::event::{BreakerState, BusyReason, Step, StoreCall};
use crate::policy::{Mode, OnBusy};
use crate::store::within;

/// How often a claim without an answer is sent again before giving up.
const RESENDS: u32 = 2;

/// When to ask again where nobody knows how long the other will take.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// What was answered, and, with a win, the turn that the others wait for.
pub(super) struct Asked {
    pub(super) answered: Answered,
    pub(super) turn: Option<Turn>,
}

impl Asked {
    /// An answer that concerns nobody else.
    const fn alone(answered: Answered) -> Self {
        Self {
            answered,
            turn: None,
        }
    }
}

impl Asker<'_> {
    /// The store's answer: from what this process knows, from another's claim, or from our own. An error where the caller
    /// may not wait for another's claim, or not any longer (P34).
    pub(super) async fn claimed(&mut self, asked: Tick) -> Result<Asked, Problem> {
        // An observer runs whatever it is told. And what got no answer, here or at a caller that brought its own
        // token, may have won: only that token can learn it (P6).
        let may_hold = self.unanswered_since.is_some() || self.request.token.is_some();
        if self.request.policy.mode != Mode::Enforce || may_hold {
            return Ok(Asked::alone(self.claim_once(asked).await));
        }
        let (identity, fingerprint) = (self.claim.identity, self.claim.fingerprint);
        let turns = &self.engine.turns;
        match turns.enter(identity, fingerprint, asked, || self.take_place()) {
            Entry::Known(claimed) => Ok(Asked::alone(Ok((claimed, asked)))),
            Entry::Ask(turn) => Ok(self.ask_for_all(turn, asked).await),
            Entry::Refused(why) => Err(self.give_up(why, UNKNOWN_WAIT)),
            // Boxed, as it is rare: the way of most requests stays small.
            Entry::Wait(hear) => Box::pin(self.hear(hear)).await,
        }
    }

    /// Waits for what another's claim brings, no longer than this caller waits at all.
    async fn hear(&mut self, hear: oneshot::Receiver<Heard>) -> Result<Asked, Problem> {
        let timer = self.engine.env.clock.sleep(self.left_to_wait());
        let heard = match future::select(hear, timer).await {
            Either::Left((heard, _)) => heard.unwrap_or(Heard::Alone),
            Either::Right(_) => {
                let why = match self.request.policy.on_busy {
                    OnBusy::Wait(_) => BusyReason::WaitedTooLong,
                    OnBusy::Refuse => BusyReason::Policy,
                };
                return Err(self.give_up(why, UNKNOWN_WAIT));
            }
        };
        let now = self.now();
        Ok(match heard {
            Heard::Answer(answered) => Asked::alone(answered),
            Heard::Turn(mut turn) => {
                turn.gather();
                // There was a record a moment ago: let the store look first.
                self.claim.retry = true;
                self.ask_for_all(turn, now).await
            }
            Heard::Alone => Asked::alone(self.claim_once(now).await),
        })
    }

    async fn ask_for_all(&mut self, turn: Turn, now: Tick) -> Asked {
        let answered = self.claim_once(now).await;
        if let Ok((Claimed::Won(_), _)) = &answered {
            let turn = Some(turn);
            return Asked { answered, turn };
        }
        turn.share(&answered);
        Asked::alone(answered)
    }

    /// Sends the claim, and sends it again, with the same token, where no answer came (P28).
    /// Answers with when the one that was answered was sent.
    async fn claim_once(&mut self, mut sent: Tick) -> Answered {
        let mut backoff = Backoff::new();
        let mut resends = 0;
        loop {
            self.pass_breaker(sent)?;
            let clock = &*self.engine.env.clock;
            let call = self.engine.store.claim(&self.claim);
            let answer = within(clock, self.engine.config.call_limit, call).await;
            let subject = &self.request.subject;
            self.engine
                .called(subject, StoreCall::Claim, sent, answer.is_ok());
            let error = match answer {
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
                // It said no, and so it is there.
                self.report_breaker(self.engine.breaker.succeeded());
                return Err(unanswered(error));
            }
            self.report_breaker(self.engine.breaker.failed(sent, self.now()));
            if resends == RESENDS {
                return Err(unanswered(error));
            }
            resends += 1;
            clock.sleep(backoff.next_pause()).await;
            sent = self.now();
        }
    }

    fn pass_breaker(&self, now: Tick) -> Result<(), Unanswered> {
        let admitted = self.engine.breaker.admit(now);
        let changed = admitted.map_err(|retry_after| {
            self.emit(Step::NotAsked);
            Unanswered {
                source: None,
                retry_after,
            }
        })?;
        self.report_breaker(changed);
        Ok(())
    }

    fn report_breaker(&self, changed: Option<BreakerState>) {
        if let Some(state) = changed {
            self.emit(Step::Breaker { state });
        }
    }
}

fn unanswered(error: StoreError) -> Unanswered {
    Unanswered {
        source: Some(error),
        retry_after: Duration::from_secs(1),
    }
}
