//! Audits every step of the store against the invariants, written from the specification and
//! independent of the shipped functions.

use semel_core::{CrashPolicy, Settlement, State};

use super::Protocol;
use super::codec::{client_of, settlement};
use super::faults::Fault;
use super::world::{AnswerNo, FenceNo, Phase, Reply, Resolve, Row, Verdict, Won, World};

/// A lease, as a message names it: fence and token.
pub(super) type Lease = (FenceNo, u8);

impl Protocol {
    pub(super) fn audit_claim(
        &self,
        world: &mut World,
        before: Option<Row>,
        token: u8,
        reply: Reply,
    ) {
        let live = self.live(world, before);
        self.audit_answer(world, before);
        if live.is_none() {
            let begun =
                matches!(reply, Reply::Won { .. }) && world.row.is_some_and(|row| row.attempt == 1);
            world.ghost.require(begun, Fault::Expired);
        }
        let payload = self.config.clients[client_of(token)].payload;
        if let Some(row) = live.filter(|row| row.state != State::Released)
            && row.payload != payload
        {
            let refused = matches!(reply, Reply::Mismatch { .. }) && world.row == before;
            world.ghost.require(refused, Fault::Mismatch);
        }
        if let Reply::Replay { answer } = reply {
            let stored = live.is_some_and(|row| is_answered(row.state) && row.answer == answer);
            world.ghost.require(stored, Fault::AnswerChanged);
        }
        if let Reply::Won { fence, how, .. } = reply
            && how != Won::SameLease
        {
            world.ghost.require(fence > world.ghost.top, Fault::Fences);
            world.ghost.top = world.ghost.top.max(fence);
            match live {
                Some(row) if row.state != State::Released => self.audit_takeover(world, row),
                _ => begin_run(world, before.is_some() && live.is_none()),
            }
        }
    }

    /// A record that was not free has been won.
    fn audit_takeover(&self, world: &mut World, row: Row) {
        let lapsed = row.state == State::Running && self.codec.is_past_lease(&row, world.now);
        let allowed = row.crash == CrashPolicy::Takeover && row.attempt < self.config.max_attempts;
        world.ghost.require(lapsed && allowed, Fault::Takeover);
        let handed_on = world
            .row
            .is_some_and(|now| now.checkpoint == row.checkpoint);
        world.ghost.require(handed_on || !lapsed, Fault::Checkpoint);
    }

    pub(super) fn audit_renew(
        &self,
        world: &mut World,
        before: Option<Row>,
        lease: Lease,
        checkpoint: bool,
        reply: Reply,
    ) {
        self.audit_answer(world, before);
        let mine = self
            .live(world, before)
            .filter(|row| (row.fence, row.token) == lease);
        match mine {
            Some(row) if row.state == State::Running => {
                let kept = row.checkpoint || checkpoint;
                let keeps = world.row.is_some_and(|now| now.checkpoint == kept);
                world.ghost.require(keeps, Fault::Checkpoint);
            }
            _ => {
                let refused = reply == Reply::RenewLost && world.row == before;
                world.ghost.require(refused, Fault::StaleLease);
            }
        }
    }

    pub(super) fn audit_settle(
        &self,
        world: &mut World,
        before: Option<Row>,
        lease: Lease,
        sent: &Settlement,
        verdict: Verdict,
        reply: Reply,
    ) {
        self.audit_answer(world, before);
        let done = matches!(reply, Reply::Done { .. });
        let mine = self
            .live(world, before)
            .filter(|row| (row.fence, row.token) == lease);
        let Some(row) = mine else {
            world
                .ghost
                .require(!done && world.row == before, Fault::StaleLease);
            return;
        };
        let says = |row: &Row| says(row, sent, lease.0);
        if matches!(row.state, State::Running | State::InDoubt) {
            let written = done && world.row.as_ref().is_some_and(says);
            world.ghost.require(written, Fault::LateSettle);
            let legal = *sent != Settlement::Release
                || row.crash == CrashPolicy::Takeover
                || verdict.is_nothing();
            world.ghost.require(legal, Fault::Release);
            let by_stored = *sent == settlement(verdict, row.crash, lease.0);
            world.ghost.require(by_stored, Fault::StoredPolicy);
        } else {
            world.ghost.require(
                world.row == before && done == says(&row),
                Fault::SettledOnce,
            );
        }
    }

    pub(super) fn audit_resolve(
        &self,
        world: &mut World,
        before: Option<Row>,
        fence: FenceNo,
        resolve: Resolve,
        done: bool,
    ) {
        self.audit_answer(world, before);
        if world.row == before {
            return;
        }
        let named = before.filter(|row| row.fence == fence);
        let ended = named.is_some_and(|row| self.is_doubtful(world, row));
        world.ghost.require(done && ended, Fault::Resolution);
        if resolve == Resolve::Release && world.ghost.hold_run == fence {
            // The operator vouches for it that nothing happened.
            world.ghost.hold_run = 0;
        }
    }

    pub(super) fn audit_sweep(&self, world: &mut World, row: Row) {
        let expired = self.codec.is_expired(&row, world.now);
        world.ghost.require(expired, Fault::Swept);
        world.ghost.alive = !expired;
    }

    /// An answer, once kept, stays as it is until it expires (I2).
    fn audit_answer(&self, world: &mut World, before: Option<Row>) {
        let kept = self
            .live(world, before)
            .filter(|row| is_answered(row.state));
        world
            .ghost
            .require(kept.is_none() || world.row == kept, Fault::AnswerChanged);
    }

    /// In doubt, or lapsed for good (P10, P29).
    pub(super) fn is_doubtful(&self, world: &World, row: Row) -> bool {
        let for_good = row.crash == CrashPolicy::Hold || row.attempt >= self.config.max_attempts;
        let lapsed = row.state == State::Running && self.codec.is_past_lease(&row, world.now);
        let live = !self.codec.is_expired(&row, world.now);
        live && (row.state == State::InDoubt || lapsed && for_good)
    }

    fn live(&self, world: &World, row: Option<Row>) -> Option<Row> {
        row.filter(|row| !self.codec.is_expired(row, world.now))
    }
}

/// The key was free: attempts count from one. A record that was removed before it expired was still
/// in the same life: its effect may have happened.
fn begin_run(world: &mut World, expired: bool) {
    world.ghost.starts = 0;
    if expired || !world.ghost.alive {
        world.ghost.hold_run = 0;
        for client in &mut world.clients {
            if let Phase::Answered { answer } = &mut client.phase {
                *answer = 0;
            }
        }
    }
    world.ghost.alive = true;
}

pub(super) const fn is_answered(state: State) -> bool {
    matches!(state, State::Completed | State::Failed)
}

/// Whether a record is as `settlement`, whose answer would be `answer`, leaves it.
pub(super) fn says(row: &Row, settlement: &Settlement, answer: AnswerNo) -> bool {
    let answer = if settlement.answer().is_some() {
        answer
    } else {
        0
    };
    row.state == settlement.state() && row.answer == answer
}
