//! The store's steps: each hands the record to the (shipped) rules, writes what they say, and has
//! the outcome audited.

use semel_core::claim::{Claimed, Renewed, Resolved, Settled};
use semel_core::protocol::Decision;
use semel_core::{CrashPolicy, Fence, State, Token};

use super::Protocol;
use super::audit::Lease;
use super::breaks::Break;
use super::codec::{self, fence_no, settlement, time};
use super::world::{Done, Doubt, Message, Reply, Resolve, Row, Ticks, Verdict, Won, World};

impl Protocol {
    /// The store takes up a message.
    pub(super) fn arrive(&self, world: &mut World, message: Message) -> Reply {
        match message {
            Message::Claim { token } => self.claim(world, token),
            Message::Renew {
                token,
                fence,
                checkpoint,
            } => self.renew(world, (fence, token), checkpoint),
            Message::Settle {
                token,
                fence,
                crash,
                verdict,
            } => self.settle(world, (fence, token), crash, verdict),
        }
    }

    fn claim(&self, world: &mut World, token: u8) -> Reply {
        let decision = self.decide(world.row, token, world.now);
        self.write_claim(world, token, &decision)
    }

    fn decide(&self, found: Option<Row>, token: u8, at: Ticks) -> Decision<Claimed> {
        let found = found.map(|row| self.codec.record(&row));
        let ask = self.codec.claim(token);
        self.rules.claim(found.as_ref(), ask, time(at))
    }

    /// What a look finds that is to be written by a swap later. What needs no write needs no swap;
    /// and what is absent can't be compared with anything later, so a record is created in one
    /// step.
    pub(super) fn looked_at(&self, world: &World, token: u8) -> Option<Row> {
        let row = world.row.filter(|_| self.config.two_steps)?;
        let decision = self.decide(Some(row), token, world.now);
        decision.write.map(|_| row)
    }

    /// Puts what a look decided in the place of what it saw. `None` where that has changed (P45).
    pub(super) fn swap(
        &self,
        world: &mut World,
        token: u8,
        (seen, at): (Row, Ticks),
    ) -> Option<Reply> {
        let found = world.row?;
        // One that has expired since is gone, whether anybody has removed it or not (P20): others
        // were told so.
        let has_expired =
            self.codec.is_expired(&found, world.now) != self.codec.is_expired(&seen, at);
        if has_expired || self.compared(found) != self.compared(seen) {
            return None;
        }
        let mut decision = self.decide(Some(seen), token, at);
        if let Some(record) = &mut decision.write {
            record.written_at = time(world.now);
        }
        Some(self.write_claim(world, token, &decision))
    }

    /// What a swap compares: all of the record, unless that rule is broken.
    const fn compared(&self, row: Row) -> Row {
        if !self.config.breaks.has(Break::SwapMissesRenewal) {
            return row;
        }
        Row {
            written: 0,
            checkpoint: false,
            ..row
        }
    }

    fn write_claim(&self, world: &mut World, token: u8, decision: &Decision<Claimed>) -> Reply {
        let before = world.row;
        if let Some(record) = &decision.write {
            world.row = Some(self.codec.row(record));
        }
        let reply = match &decision.answer {
            Claimed::Won(grant) => Reply::Won {
                fence: fence_no(grant.fence),
                crash: grant.crash,
                how: self.how_won(world, before, token, !grant.checkpoint.is_empty()),
            },
            Claimed::Busy(_) => Reply::Busy,
            Claimed::Replay(replay) => Reply::Replay {
                answer: codec::answer_no(&replay.answer),
            },
            Claimed::Mismatch(_) => Reply::Mismatch {
                settled: before.is_some_and(|row| row.state != State::Running),
            },
            Claimed::InDoubt(_) => Reply::InDoubt {
                how: how_doubted(before),
            },
        };
        self.audit_claim(world, before, token, reply);
        reply
    }

    fn how_won(&self, world: &World, before: Option<Row>, token: u8, checkpoint: bool) -> Won {
        match before {
            None if world.ghost.top == 0 => Won::New,
            None => Won::AfterExpiry,
            Some(row) if self.codec.is_expired(&row, world.now) => Won::AfterExpiry,
            Some(row) if row.state == State::Released => Won::AfterRelease,
            Some(row) if row.token == token && world.row == before => Won::SameLease,
            Some(_) if checkpoint => Won::TakeoverWithCheckpoint,
            Some(_) => Won::Takeover,
        }
    }

    fn renew(&self, world: &mut World, lease: Lease, checkpoint: bool) -> Reply {
        let before = world.row;
        let found = before.map(|row| self.codec.record(&row));
        let given = codec::checkpoint(checkpoint);
        let now = time(world.now);
        let decision = self
            .rules
            .renew(found.as_ref(), named(lease), given.as_ref(), now);
        if let Some(record) = &decision.write {
            world.row = Some(self.codec.row(record));
        }
        let reply = match decision.answer {
            Renewed::Held => Reply::Held,
            Renewed::Lost => Reply::RenewLost,
        };
        self.audit_renew(world, before, lease, checkpoint, reply);
        reply
    }

    fn settle(
        &self,
        world: &mut World,
        lease: Lease,
        crash: CrashPolicy,
        verdict: Verdict,
    ) -> Reply {
        let before = world.row;
        let found = before.map(|row| self.codec.record(&row));
        let settlement = settlement(verdict, crash, lease.0);
        let now = time(world.now);
        let decision = self
            .rules
            .settle(found.as_ref(), named(lease), &settlement, now);
        if let Some(record) = &decision.write {
            world.row = Some(self.codec.row(record));
        }
        let reply = match decision.answer {
            Settled::Done => Reply::Done {
                how: self.how_done(world, before),
            },
            Settled::Lost => Reply::SettleLost,
        };
        self.audit_settle(world, before, lease, &settlement, verdict, reply);
        reply
    }

    fn how_done(&self, world: &World, before: Option<Row>) -> Done {
        match before {
            Some(row) if world.row == before && row.state != State::Running => Done::Again,
            Some(row) if row.state == State::InDoubt => Done::AfterDoubt,
            Some(row) if self.codec.is_past_lease(&row, world.now) => Done::AfterLapse,
            _ => Done::InTime,
        }
    }

    /// An operator ends the doubt that it saw under `fence`. Answers whether that was accepted.
    pub(super) fn resolve(&self, world: &mut World, fence: u16, resolve: Resolve) -> bool {
        let before = world.row;
        let found = before.map(|row| self.codec.record(&row));
        let resolution = codec::resolution(resolve);
        let now = time(world.now);
        let named = Fence(u64::from(fence));
        let decision = self.rules.resolve(found.as_ref(), named, &resolution, now);
        if let Some(record) = &decision.write {
            world.row = Some(self.codec.row(record));
        }
        let done = decision.answer == Resolved::Done;
        self.audit_resolve(world, before, fence, resolve, done);
        done
    }

    /// Whether a sweep would remove something.
    pub(super) fn can_sweep(&self, world: &World) -> bool {
        world
            .row
            .is_some_and(|row| self.rules.sweeps(&self.codec.record(&row), time(world.now)))
    }

    pub(super) fn sweep(&self, world: &mut World) {
        if let Some(row) = world.row.take() {
            self.audit_sweep(world, row);
        }
    }
}

fn named((fence, token): Lease) -> (Fence, Token) {
    (Fence(u64::from(fence)), Token(u128::from(token)))
}

fn how_doubted(before: Option<Row>) -> Doubt {
    match before {
        Some(row) if row.state == State::InDoubt => Doubt::Known,
        Some(row) if row.crash == CrashPolicy::Takeover => Doubt::Attempts,
        _ => Doubt::Hold,
    }
}
