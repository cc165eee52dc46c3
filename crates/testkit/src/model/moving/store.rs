//! The two stores and the bodies: each decides by the shipped functions, and the outcome is
//! audited.

use semel_core::claim::{Claimed, Renewed, Resolved, Restored, Settled};
use semel_core::{Fence, Record, State, Timestamp, Token, protocol};

use super::super::breaks::Break;
use super::super::codec::{ELSEWHERE, answer_no, checkpoint, fence_no, small, time, unmarked};
use super::super::world::{AnswerNo, Row, Ticks};
use super::Moving;
use super::faults::Fault;
use super::reach::Event;
use super::world::{Call, Client, CopyReply, Harm, How, Phase, Place, Sent, World};

impl Moving {
    /// Now, on a store's clock.
    pub(super) fn now(&self, world: &World, store: usize) -> Ticks {
        world.now + self.config.ahead[store]
    }

    /// The record that a store has, unless it expired.
    pub(super) fn live(&self, world: &World, store: usize) -> Option<Row> {
        let now = self.now(world, store);
        world.rows[store].filter(|row| !self.codec.is_expired(row, now))
    }

    /// A call arrives.
    pub(super) fn arrive(&self, world: &mut World, sent: Sent) -> CopyReply {
        let store = match sent.to {
            Place::Old => 0,
            Place::New => 1,
            Place::Bodies => return self.arrive_at_shelf(world, sent.call),
        };
        let at = time(self.now(world, store));
        let before = world.rows[store];
        let found = before.map(|row| self.codec.record(&row));
        let (said, write) = self.decide(world, store, found.as_ref(), sent.call, at);
        if let Some(record) = write {
            world.rows[store] = Some(self.codec.row(&record));
        }
        self.audit(world, store, before, sent.call, said);
        said
    }

    fn decide(
        &self,
        world: &World,
        store: usize,
        found: Option<&Record>,
        call: Call,
        at: Timestamp,
    ) -> (CopyReply, Option<Record>) {
        let owner = |fence, token| (Fence(u64::from(fence)), Token(u128::from(token)));
        match call {
            Call::Claim { token } => {
                let ask = self.codec.claim(token);
                let found = found.filter(|record| !self.is_missed(world, record));
                let decision = self.rules.claim(found, ask, at);
                (claimed(&decision.answer), decision.write)
            }
            Call::Renew {
                token,
                fence,
                checkpoint: given,
            } => {
                let given = checkpoint(given);
                let owner = owner(fence, token);
                let decision = self.rules.renew(found, owner, given.as_ref(), at);
                (yes(decision.answer == Renewed::Held), decision.write)
            }
            Call::Settle { token, fence, how } => {
                let owner = owner(fence, token);
                let decision = self.rules.settle(found, owner, &how.settlement(), at);
                (yes(decision.answer == Settled::Done), decision.write)
            }
            Call::Resolve { fence, how } => {
                let fence = Fence(u64::from(fence));
                let decision = self.rules.resolve(found, fence, &how.resolution(), at);
                (yes(decision.answer == Resolved::Done), decision.write)
            }
            Call::Restore { row } => self.restore(found, &self.codec.record(&row), at),
            Call::Read => (CopyReply::Found(self.live(world, store)), None),
            Call::Put { .. } | Call::Get { .. } => unreachable!("bodies are elsewhere"),
        }
    }

    fn restore(
        &self,
        found: Option<&Record>,
        record: &Record,
        at: Timestamp,
    ) -> (CopyReply, Option<Record>) {
        let taken = |found: &&Record| {
            let running = found.state == State::Running;
            let settled = matches!(found.state, State::Completed | State::Failed);
            self.has(Break::RestoreOverRunning) && running
                || self.has(Break::RestoreOverAnswer) && settled
        };
        let seen = found.filter(|found| !taken(found));
        let mut decision = protocol::restore(seen, record, at);
        if let Some(write) = &mut decision.write
            && self.has(Break::RestoreLowersFence)
        {
            write.fence = record.fence;
        }
        if self.has(Break::RestoreTwice) && found.is_some() && decision.write.is_none() {
            // What stands there already is refused as if it were something else.
            decision.answer = Restored::Kept;
        }
        (yes(decision.answer == Restored::Written), decision.write)
    }

    /// Whether a broken rule takes a record whose body is gone for absent.
    fn is_missed(&self, world: &World, record: &Record) -> bool {
        let elsewhere = record
            .answer
            .as_ref()
            .is_some_and(|answer| answer_no(answer) >= ELSEWHERE);
        elsewhere && world.shelf.harm.is_some() && self.has(Break::BodyGoneIsAbsent)
    }

    fn arrive_at_shelf(&self, world: &mut World, call: Call) -> CopyReply {
        match call {
            Call::Put { answer } => {
                world.shelf.written |= 1 << answer;
                world.shelf.harm = None;
                CopyReply::Yes
            }
            Call::Get { answer } => {
                let written = world.shelf.written & 1 << answer != 0;
                CopyReply::Body(match world.shelf.harm {
                    _ if !written => None,
                    Some(Harm::Gone) => None,
                    harm => Some((answer, harm.is_none())),
                })
            }
            _ => unreachable!("a store is asked that"),
        }
    }

    fn audit(
        &self,
        world: &mut World,
        store: usize,
        before: Option<Row>,
        call: Call,
        said: CopyReply,
    ) {
        let now = self.now(world, store);
        let live = before.filter(|row| !self.codec.is_expired(row, now));
        let after = world.rows[store];
        // I2: an answer, once kept, stays as it is.
        if let Some(row) = live.filter(|row| is_over(row.state)) {
            self.require(world, after == Some(row), Fault::AnswerChanged);
        }
        match call {
            Call::Restore { row } => self.audit_restore(world, store, live, before, row, said),
            Call::Settle {
                how: How::Complete(answer) | How::Fail(answer),
                ..
            } if said == CopyReply::Yes && answer >= ELSEWHERE => {
                let written = world.shelf.written & 1 << unmarked(answer) != 0;
                self.require(world, written, Fault::BodyAfter);
            }
            Call::Settle { how, .. } if said == CopyReply::Yes => {
                let again = after == before;
                self.event_if(again, Event::SettledAgain);
                let working = |client: &Client| matches!(client.phase, Phase::Working { .. });
                // Whoever gives its lease back says that its effect may run again (P36).
                if how == How::Release && !again && !world.clients.iter().any(working) {
                    world.ghost.starts = 0;
                }
            }
            _ => {}
        }
        let (was, is) = (before.map(|row| row.fence), after.map(|row| row.fence));
        self.require(world, is >= was, Fault::Fences);
    }

    /// P43, in the model's numbers.
    fn audit_restore(
        &self,
        world: &mut World,
        store: usize,
        live: Option<Row>,
        before: Option<Row>,
        row: Row,
        said: CopyReply,
    ) {
        let now = self.now(world, store);
        let after = world.rows[store];
        let expired = self.codec.is_expired(&row, now);
        let written = said == CopyReply::Yes;
        let fence = before.map_or(row.fence, |before| before.fence.max(row.fence));
        let copy = Some(Row { fence, ..row });
        let free = live.is_none_or(|row| row.state == State::Released);
        let stood = live.is_some() && live == copy;
        let right = match (stood, free && !expired) {
            (true, _) => written && after == before,
            (false, true) => written && after == copy,
            (false, false) => !written && after == before,
        };
        self.require(world, right, Fault::Restored);
        self.event_if(stood, Event::RestoredAgain);
        self.event_if(!free && !stood, Event::RestoreKept);
        self.event_if(expired, Event::RestoreExpired);
        self.event_if(
            free && live.is_some() && !stood,
            Event::RestoredOverReleased,
        );
        self.event_if(written && row.state == State::InDoubt, Event::DoubtBrought);
    }
}

fn claimed(answer: &Claimed) -> CopyReply {
    match answer {
        Claimed::Won(grant) => CopyReply::Won {
            fence: fence_no(grant.fence),
            attempt: small(grant.attempt),
            checkpoint: !grant.checkpoint.is_empty(),
            crash: grant.crash,
        },
        Claimed::Busy(_) => CopyReply::Busy,
        Claimed::Replay(replay) => CopyReply::Replay {
            answer: answer_no(&replay.answer),
            failed: replay.state == State::Failed,
        },
        Claimed::Mismatch(_) => CopyReply::Mismatch,
        Claimed::InDoubt(doubt) => CopyReply::InDoubt {
            fence: fence_no(doubt.fence),
        },
    }
}

const fn yes(is: bool) -> CopyReply {
    if is { CopyReply::Yes } else { CopyReply::No }
}

pub(super) const fn is_over(state: State) -> bool {
    matches!(state, State::Completed | State::Failed)
}

/// The answer of a record, wherever its body is; 0 for none.
pub(super) fn answered(row: &Row) -> AnswerNo {
    if is_over(row.state) {
        unmarked(row.answer)
    } else {
        0
    }
}
