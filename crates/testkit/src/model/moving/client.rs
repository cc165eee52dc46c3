//! The steps of the nodes: what an engine does with the store's replies.

use semel_core::{Certainty, Claimed, CrashPolicy, Renewed, Settled, State, StoreError};

use super::super::breaks::Break;
use super::super::codec::{OMITTED, answer_no, token_of, unmarked};
use super::super::config::TICK;
use super::super::world::{AnswerNo, Ticks, Verdict};
use super::Moving;
use super::drive::{Ended, how, lease};
use super::faults::Fault;
use super::reach::Event;
use super::step::Trouble;
use super::world::{
    Call, Client, CopyReply, Harm, How, Lease, Phase, Place, Sent, Stray, Uses, World,
};

impl Moving {
    /// P30, as in the model of one store.
    pub(super) fn is_before_deadline(&self, now: Ticks, since: Ticks) -> bool {
        let span = TICK * u32::from(self.config.terms.lease);
        TICK * u32::from(now - since) < span - span / 10
    }

    /// A request comes, or one that waited asks again: under the same token.
    pub(super) fn ask(&self, world: &mut World, client: usize) {
        let now = world.now;
        let at = &mut world.clients[client];
        at.phase = match at.phase {
            Phase::Waiting { since } => {
                world.retries -= 1;
                Phase::Claiming {
                    since: since.unwrap_or(now),
                    unanswered: since.is_some(),
                }
            }
            _ => {
                at.token = token_of(client, at.asked);
                at.asked += 1;
                world.asks -= 1;
                Phase::Claiming {
                    since: now,
                    unanswered: false,
                }
            }
        };
        at.heard = Some(Vec::new());
    }

    /// The next call of the node arrives, and it hears what is said.
    pub(super) fn arrive_from(&self, world: &mut World, client: usize) -> Option<()> {
        let sent = self.ended(&world.clients[client]).err()?;
        let said = match self.invented(world, client, sent) {
            Some(said) => said,
            None => self.arrive(world, sent),
        };
        let said = self.misheard(&world.clients[client], sent, said);
        self.hear(world, client, said);
        Some(())
    }

    /// The next call of the node gets no answer.
    pub(super) fn fail(&self, world: &mut World, client: usize, trouble: Trouble) -> Option<()> {
        let sent = self.ended(&world.clients[client]).err()?;
        world.losses -= 1;
        match trouble {
            Trouble::ReplyLost => drop(self.arrive(world, sent)),
            Trouble::Delayed => world.stray = Stray::Flying(sent),
            Trouble::Refused => {}
        }
        let definite = trouble == Trouble::Refused;
        self.hear(world, client, CopyReply::Failed { definite });
        Some(())
    }

    fn hear(&self, world: &mut World, client: usize, said: CopyReply) {
        let at = &mut world.clients[client];
        at.heard.get_or_insert_default().push(said);
        let Ok(ended) = self.ended(&world.clients[client]) else {
            return;
        };
        self.note_way(world, client);
        world.clients[client].heard = None;
        match ended {
            Ended::Claimed(Ok(claimed)) => self.claimed(world, client, &claimed),
            Ended::Renewed(Ok(renewed)) => self.renewed(world, client, renewed),
            Ended::Settled(Ok(settled)) => self.settled(world, client, settled),
            Ended::Claimed(Err(error)) => claim_failed(world, client, &error),
            // A late winner's renewal was its last try; an owner's is made again with the next.
            Ended::Renewed(Err(_)) => self.renewed(world, client, Renewed::Lost),
            Ended::Settled(Err(_)) => world.clients[client].heard = Some(Vec::new()),
        }
    }

    fn claimed(&self, world: &mut World, client: usize, claimed: &Claimed) {
        let at = &mut world.clients[client];
        let Phase::Claiming { since, unanswered } = at.phase else {
            return;
        };
        match claimed {
            Claimed::Won(grant) => {
                let lease = lease(grant);
                at.phase = Phase::Won { lease, since };
            }
            Claimed::Busy(_) => {
                let since = unanswered.then_some(since);
                at.phase = Phase::Waiting { since };
            }
            Claimed::Replay(replay) => {
                at.phase = Phase::Over;
                let uses = at.uses;
                self.event(Event::Replay(uses));
                self.give(world, answer_no(&replay.answer));
            }
            Claimed::Mismatch(_) | Claimed::InDoubt(_) => {
                self.event(Event::Doubt(at.uses));
                at.phase = Phase::Over;
            }
        }
    }

    /// The winner looks at its clock, and starts its effect if there is time.
    pub(super) fn start(&self, world: &mut World, client: usize) -> Option<()> {
        let now = world.now;
        let at = &mut world.clients[client];
        let Phase::Won { lease, since } = at.phase.clone() else {
            return None;
        };
        if self.is_before_deadline(now, since) {
            self.start_effect(world, client, lease);
        } else {
            at.phase = Phase::Renewing { lease, since: now };
            at.heard = Some(Vec::new());
        }
        Some(())
    }

    fn start_effect(&self, world: &mut World, client: usize, lease: Lease) {
        let at = &world.clients[client];
        let (uses, token) = (at.uses, at.token);
        let held = uses.stores().iter().all(|&store| {
            let now = self.now(world, store);
            self.live(world, store).is_some_and(|row| {
                let live = row.state == State::Running && !self.codec.is_past_lease(&row, now);
                live && row.token == token
            })
        });
        self.require(world, held, Fault::StartWithoutLease);
        self.require(world, lease.fence > world.ghost.top, Fault::Fences);
        self.require(world, world.ghost.given == 0, Fault::Answered);
        self.require(world, world.ghost.hold_run == 0, Fault::HoldTwice);
        world.ghost.top = world.ghost.top.max(lease.fence);
        world.ghost.effects += 1;
        world.ghost.starts += 1;
        let most = self.config.terms.max_attempts;
        self.require(world, world.ghost.starts <= most, Fault::TooManyStarts);
        if lease.crash == CrashPolicy::Hold {
            world.ghost.hold_run = token;
        }
        self.event(Event::Effect(uses));
        self.event_if(lease.attempt > 1, Event::Takeover(uses));
        let answer = AnswerNo::from(world.ghost.effects);
        world.clients[client].phase = Phase::Working { lease, answer };
    }

    fn renewed(&self, world: &mut World, client: usize, renewed: Renewed) {
        let now = world.now;
        let Phase::Renewing { lease, since } = world.clients[client].phase.clone() else {
            return;
        };
        if renewed == Renewed::Held && self.is_before_deadline(now, since) {
            self.start_effect(world, client, lease);
        } else {
            self.settle(world, client, lease, Verdict::Late, 0);
        }
    }

    /// The effect ends.
    pub(super) fn end(&self, world: &mut World, client: usize, verdict: Verdict) -> Option<()> {
        let Phase::Working { lease, answer } = world.clients[client].phase.clone() else {
            return None;
        };
        if verdict.is_nothing() && world.ghost.hold_run == world.clients[client].token {
            world.ghost.hold_run = 0;
        }
        self.settle(world, client, lease, verdict, answer);
        Some(())
    }

    fn settle(
        &self,
        world: &mut World,
        client: usize,
        lease: Lease,
        verdict: Verdict,
        answer: AnswerNo,
    ) {
        let at = &mut world.clients[client];
        at.phase = Phase::Settling {
            lease,
            verdict,
            answer,
        };
        at.heard = Some(Vec::new());
    }

    fn settled(&self, world: &mut World, client: usize, settled: Settled) {
        let at = &mut world.clients[client];
        let phase = std::mem::replace(&mut at.phase, Phase::Over);
        if let Phase::Settling {
            lease,
            verdict,
            answer,
        } = phase
            && settled == Settled::Done
            && matches!(
                how(verdict, &lease, answer),
                How::Complete(_) | How::Fail(_)
            )
        {
            self.give(world, answer);
        }
    }

    /// A caller is given an answer.
    fn give(&self, world: &mut World, answer: AnswerNo) {
        let number = unmarked(answer);
        let is_known = |store| {
            let row = self.live(world, store);
            row.is_some_and(|row| super::store::answered(&row) == number)
        };
        if self.config.terms.retention <= self.config.horizon && !is_known(0) && !is_known(1) {
            // It has expired on its way: the life of the key that it was given in is over.
            return;
        }
        let same = world.ghost.given == 0 || world.ghost.given == number;
        self.require(world, same, Fault::Answers);
        world.ghost.given = number;
        let changed = world.shelf.harm == Some(Harm::Changed);
        if answer >= OMITTED {
            let harmed = world.shelf.harm.is_some();
            let unchecked = changed && self.has(Break::BodyUnchecked);
            self.require(world, harmed && !unchecked, Fault::Body);
            self.event(if changed {
                Event::BodyChanged
            } else {
                Event::BodyGone
            });
        }
    }

    /// The node dies. What it had sent may still arrive.
    pub(super) fn crash(&self, world: &mut World, client: usize, flying: bool) {
        let at = &world.clients[client];
        if at.heard.is_some()
            && let Err(sent) = self.ended(at)
        {
            let settling = matches!(at.phase, Phase::Settling { .. });
            let half = at.heard.as_ref().is_some_and(|heard| heard.len() == 1);
            let both = at.uses.stores().len() == 2;
            self.event_if(settling && half && both, Event::DiedBetween);
            if flying {
                world.stray = Stray::Flying(sent);
            }
        }
        world.crashes -= 1;
        let at = &mut world.clients[client];
        (at.phase, at.heard) = (Phase::Over, None);
    }

    /// Notes by which way of several a call came to its end.
    fn note_way(&self, world: &World, client: usize) {
        let at = &world.clients[client];
        let heard = at.heard.as_deref().unwrap_or_default();
        let claiming = matches!(at.phase, Phase::Claiming { .. });
        match (at.uses.stores().len(), heard) {
            (2, [CopyReply::Won { .. }, second, CopyReply::Yes]) if claiming => {
                self.event(match second {
                    CopyReply::Replay { .. } => Event::WrittenBack,
                    CopyReply::InDoubt { .. } => Event::DoubtTakenOver,
                    _ => Event::GivenBack,
                });
            }
            (
                2,
                [
                    CopyReply::InDoubt { .. },
                    CopyReply::Found(_),
                    CopyReply::Found(_),
                    CopyReply::Yes,
                    ..,
                ],
            ) => {
                self.event(Event::DoubtEnded);
            }
            (1, [CopyReply::Replay { .. }, CopyReply::Failed { .. }]) => {
                self.event(Event::BodyUnanswered);
            }
            (1, [CopyReply::Failed { .. }, CopyReply::Yes]) => self.event(Event::BodyKeptInRecord),
            _ => {}
        }
    }

    /// What a broken rule makes of a call instead of sending it.
    fn invented(&self, world: &mut World, client: usize, sent: Sent) -> Option<CopyReply> {
        let at = &world.clients[client];
        let claims = matches!(sent.call, Call::Claim { .. });
        if self.has(Break::MirrorAsksOne) && claims && is_second(at.uses, sent.to) {
            return Some(WON);
        }
        if self.has(Break::BodyAfterSettlement) && matches!(sent.call, Call::Put { .. }) {
            world.stray = Stray::Flying(sent);
            return Some(CopyReply::Yes);
        }
        None
    }

    /// What a broken rule hears instead of what was said.
    fn misheard(&self, at: &Client, sent: Sent, said: CopyReply) -> CopyReply {
        let claims = matches!(sent.call, Call::Claim { .. }) && is_second(at.uses, sent.to);
        let ignored =
            matches!(said, CopyReply::Replay { .. }) && self.has(Break::MirrorIgnoresAnswer);
        if claims && ignored { WON } else { said }
    }
}

/// What a broken rule believes.
const WON: CopyReply = CopyReply::Won {
    fence: 1,
    attempt: 1,
    checkpoint: false,
    crash: CrashPolicy::Takeover,
};

fn is_second(uses: Uses, place: Place) -> bool {
    matches!(
        (uses, place),
        (Uses::OldAndNew, Place::New) | (Uses::NewAndOld, Place::Old)
    )
}

/// No answer: the same claim is sent again, unless that can't help. Where it may have won, its time
/// counts from then.
fn claim_failed(world: &mut World, client: usize, error: &StoreError) {
    let now = world.now;
    let at = &mut world.clients[client];
    let Phase::Claiming { since, unanswered } = &mut at.phase else {
        return;
    };
    if !error.is_transient() {
        at.phase = Phase::Over;
        return;
    }
    if error.certainty == Certainty::Unknown {
        *unanswered = true;
    } else if !*unanswered {
        *since = now;
    }
    at.heard = Some(Vec::new());
}
