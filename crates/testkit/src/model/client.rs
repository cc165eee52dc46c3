//! The clients' steps: what an engine does with the store's replies.

use semel_core::{CrashPolicy, State};

use super::Protocol;
use super::breaks::Break;
use super::codec::free_token;
use super::config::TICK;
use super::faults::Fault;
use super::world::{
    AnswerNo, Before, Call, Client, FenceNo, Message, Phase, Reply, Stray, Ticks, Verdict, World,
};

impl Protocol {
    /// P30: before the moment that the claim was first sent, plus the lease, minus a tenth of it.
    pub(super) fn is_before_deadline(&self, now: Ticks, since: Ticks) -> bool {
        let lease = TICK * u32::from(self.config.lease);
        TICK * u32::from(now - since) < lease - lease / 10
    }

    /// Sends a claim: under a new token, unless one sent before may yet win.
    pub(super) fn send_claim(&self, world: &mut World, client: usize) {
        let forgets = self.config.breaks.has(Break::DeadlineFromRetry);
        let phase = match world.clients[client].phase {
            Phase::Waiting { since: Some(since) } => Phase::Claiming {
                since: if forgets { world.now } else { since },
                unanswered: true,
            },
            _ => {
                world.clients[client].token = fresh_token(world, client);
                Phase::Claiming {
                    since: world.now,
                    unanswered: false,
                }
            }
        };
        world.clients[client].phase = phase;
        world.clients[client].call = sent(false);
    }

    fn start_effect(&self, world: &mut World, client: usize, grant: Grant, since: Ticks) {
        let Grant { fence, crash } = grant;
        let in_time = self.is_before_deadline(world.now, since);
        world.ghost.require(in_time, Fault::LateStart);
        let token = world.clients[client].token;
        let mine = world.row.filter(|row| {
            let live = row.state == State::Running && !self.codec.is_past_lease(row, world.now);
            live && (row.fence, row.token) == (fence, token)
        });
        world
            .ghost
            .require(mine.is_some(), Fault::StartWithoutLease);
        world.ghost.starts += 1;
        let attempts = mine.map_or(self.config.max_attempts, |row| row.attempt);
        world
            .ghost
            .require(world.ghost.starts <= attempts, Fault::TooManyStarts);
        world
            .ghost
            .require(world.ghost.hold_run == 0, Fault::HoldTwice);
        if crash == CrashPolicy::Hold {
            world.ghost.hold_run = fence;
        }
        world.clients[client].phase = Phase::Working { fence, crash };
    }

    /// A call got no answer. A claim may have won, or may yet; a late winner's renewal was its last
    /// try.
    pub(super) fn no_answer(&self, world: &mut World, client: usize) {
        let now = world.now;
        let at = &mut world.clients[client];
        match &mut at.phase {
            Phase::Claiming { since, unanswered } => {
                *unanswered = true;
                if self.config.breaks.has(Break::DeadlineFromResend) {
                    *since = now;
                }
            }
            Phase::Renewing { fence, crash, .. } => *at = give_up(at.token, *fence, *crash),
            _ => {}
        }
    }

    pub(super) fn renew_lease(&self, world: &mut World, client: usize, checkpoint: bool) {
        world.clients[client].call = sent(checkpoint);
    }

    /// The effect ends, and its verdict is sent. A renewal on its way stays on its way.
    pub(super) fn end_effect(
        &self,
        world: &mut World,
        client: usize,
        verdict: Verdict,
    ) -> Option<()> {
        let at = world.clients[client];
        let Phase::Working { fence, crash } = at.phase else {
            return None;
        };
        if let Call::Sent { .. } = at.call
            && let Some(message) = self.message(&at)
        {
            self.let_go(world, message, false);
        }
        if verdict.is_nothing() && world.ghost.hold_run == fence {
            world.ghost.hold_run = 0;
        }
        let crash = self.policy_gone_by(client, crash, verdict);
        world.clients[client].phase = Phase::Settling {
            fence,
            crash,
            verdict,
        };
        world.clients[client].call = sent(false);
        if self.config.breaks.has(Break::AnswerUnsettled) && verdict.is_answer() {
            let message = Message::Settle {
                token: at.token,
                fence,
                crash,
                verdict,
            };
            self.let_go(world, message, false);
            self.answer(world, client, fence);
        }
        Some(())
    }

    /// The crash policy that the owner goes by: the one that the grant told it of.
    fn policy_gone_by(&self, client: usize, granted: CrashPolicy, verdict: Verdict) -> CrashPolicy {
        if self.config.breaks.has(Break::OwnersPolicy) {
            self.config.clients[client].crash
        } else if self.config.breaks.has(Break::ReleaseUnderHold) && verdict == Verdict::Retry {
            CrashPolicy::Takeover
        } else {
            granted
        }
    }

    fn may_start(&self, now: Ticks, since: Ticks) -> bool {
        self.is_before_deadline(now, since) || self.config.breaks.has(Break::NoDeadline)
    }

    /// The store's reply reaches the client.
    pub(super) fn deliver(&self, world: &mut World, client: usize) -> Option<()> {
        let at = world.clients[client];
        let Call::Replied { reply, .. } = at.call else {
            return None;
        };
        world.clients[client].call = Call::None;
        match (at.phase, reply) {
            (Phase::Claiming { since, .. }, Reply::Won { fence, crash, .. }) => {
                if self.may_start(world.now, since) {
                    self.start_effect(world, client, Grant { fence, crash }, since);
                } else {
                    let phase = Phase::Renewing {
                        fence,
                        crash,
                        since: world.now,
                    };
                    world.clients[client] = Client {
                        phase,
                        call: sent(false),
                        ..at
                    };
                }
            }
            (
                Phase::Renewing {
                    fence,
                    crash,
                    since,
                },
                Reply::Held,
            ) if self.may_start(world.now, since) => {
                self.start_effect(world, client, Grant { fence, crash }, since);
            }
            (Phase::Renewing { fence, crash, .. }, _) => {
                world.clients[client] = give_up(at.token, fence, crash);
            }
            (Phase::Claiming { since, unanswered }, Reply::Busy) => {
                let since = unanswered.then_some(since);
                let token = if unanswered { at.token } else { 0 };
                let phase = Phase::Waiting { since };
                world.clients[client] = Client {
                    token,
                    phase,
                    call: Call::None,
                };
            }
            (Phase::Claiming { .. }, Reply::Replay { answer }) => {
                self.answer(world, client, answer);
            }
            (Phase::Settling { fence, verdict, .. }, Reply::Done { .. }) if verdict.is_answer() => {
                self.answer(world, client, fence);
            }
            (Phase::Working { .. }, _) => {}
            (Phase::Settling { .. }, _) => end(world, client, Phase::Unanswered),
            _ => end(world, client, Phase::Refused),
        }
        Some(())
    }

    fn answer(&self, world: &mut World, client: usize, answer: AnswerNo) {
        end(world, client, Phase::Answered { answer });
    }
}

/// What the store granted.
#[derive(Clone, Copy)]
struct Grant {
    fence: FenceNo,
    crash: CrashPolicy,
}

/// The owner is too late to start: nothing happened, and it says so.
const fn give_up(token: u8, fence: FenceNo, crash: CrashPolicy) -> Client {
    let phase = Phase::Settling {
        fence,
        crash,
        verdict: Verdict::Late,
    };
    Client {
        token,
        phase,
        call: sent(false),
    }
}

/// The call is over, and leaves nothing behind at the client.
fn end(world: &mut World, client: usize, phase: Phase) {
    world.clients[client] = Client {
        token: 0,
        phase,
        call: Call::None,
    };
}

const fn sent(checkpoint: bool) -> Call {
    Call::Sent {
        checkpoint,
        again: false,
        before: Before::Nothing,
    }
}

/// A token that is nowhere: not in the record, not in a message.
fn fresh_token(world: &World, client: usize) -> u8 {
    let in_message = |token: u8| {
        world.strays.iter().any(|stray| match stray {
            Stray::Flying { message, .. } => message.token() == token,
            _ => false,
        })
    };
    let in_record = |token: u8| world.row.is_some_and(|row| row.token == token);
    free_token(client, |token| in_record(token) || in_message(token))
}
