//! The store's decisions: those that ship, or those with a rule broken.

use bytes::Bytes;
use semel_core::protocol::{self, Decision};
use semel_core::{Claim, Claimed, CrashPolicy, Fence, Record, Renewed, Resolution, Resolved};
use semel_core::{Settled, Settlement, State, Timestamp, Token};

use super::breaks::{Break, Breaks};

/// Decides as [`protocol`] does, but for the rules that are broken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules(pub(super) Breaks);

impl Rules {
    const fn has(self, broken: Break) -> bool {
        self.0.has(broken)
    }

    pub(super) fn claim(
        self,
        found: Option<&Record>,
        ask: &Claim,
        now: Timestamp,
    ) -> Decision<Claimed> {
        if self.0.is_empty() {
            return protocol::claim(found, ask, now);
        }
        let mut seen = found.cloned();
        let mut asked = ask.clone();
        if let Some(record) = &mut seen {
            self.misread(record, &mut asked, now);
        }
        let at = self.reading_time(found, now);
        let mut decision = protocol::claim(seen.as_ref(), &asked, at);
        if let Some(record) = &mut decision.write {
            record.written_at = now;
            self.miswrite(found, record, ask, now);
            if let Claimed::Won(grant) = &mut decision.answer {
                grant.fence = record.fence;
                grant.token = record.token;
                grant.attempt = record.attempt;
                grant.checkpoint = record.checkpoint.clone();
                grant.crash = record.crash;
            }
        }
        decision
    }

    /// Shows a claim something else than what is there.
    fn misread(self, record: &mut Record, ask: &mut Claim, now: Timestamp) {
        let running = record.state == State::Running;
        let stranger = record.token != ask.token;
        if self.has(Break::TakeoverTooEarly) && running && stranger {
            record.lease = std::time::Duration::ZERO;
        }
        if self.has(Break::LapseUnnoticed) && running && stranger {
            record.lease = record.retention;
        }
        if self.has(Break::TakeoverUnderHold) && record.is_lapsed(now) {
            record.crash = CrashPolicy::Takeover;
        }
        if self.has(Break::AskersPolicy) {
            record.crash = ask.terms.crash();
        }
        if self.has(Break::TakeoverPastAttempts) {
            record.max_attempts = u16::MAX;
        }
        if self.has(Break::MismatchWhileRunning) && running
            || self.has(Break::MismatchWhenSettled) && !running
        {
            ask.fingerprint = record.fingerprint;
        }
        if self.has(Break::ResendUnknown) && running {
            record.token = Token(0);
        }
        if self.has(Break::DoubtIsFree) && record.state == State::InDoubt {
            record.state = State::Released;
        }
    }

    /// Writes something else than what was decided.
    fn miswrite(self, found: Option<&Record>, record: &mut Record, ask: &Claim, now: Timestamp) {
        let live = found.filter(|found| !found.is_expired(now));
        if let Some(live) = live {
            record.max_attempts = live.max_attempts.min(record.max_attempts);
            if record.attempt > 1 && self.has(Break::TakeoverNotCounted) {
                record.attempt = live.attempt;
            }
            if record.attempt > 1 && self.has(Break::CheckpointDropped) {
                record.checkpoint = Bytes::new();
            }
            if live.state == State::Released && self.has(Break::FenceAfterRelease) {
                record.fence = live.fence;
            }
            // What was misread is not to be written back: one decision is broken, not the record.
            if live.state != State::Released {
                record.crash = live.crash;
            }
            if record.state == State::InDoubt {
                record.token = live.token;
            }
            record.lease = ask.terms.lease();
        } else if self.has(Break::FenceAfterExpiry) {
            record.fence = Fence(1);
        }
    }

    fn reading_time(self, found: Option<&Record>, now: Timestamp) -> Timestamp {
        match found {
            Some(record) if self.has(Break::ExpiredLingers) && record.is_expired(now) => {
                Timestamp::from_micros(record.expires_at().as_micros() - 1)
            }
            _ => now,
        }
    }

    pub(super) fn renew(
        self,
        found: Option<&Record>,
        (fence, token): (Fence, Token),
        checkpoint: Option<&Bytes>,
        now: Timestamp,
    ) -> Decision<Renewed> {
        let (mut fence, mut token) = (fence, token);
        if let Some(record) = found {
            if self.has(Break::RenewAnyLease) || self.has(Break::RenewAnyFence) {
                fence = record.fence;
            }
            if self.has(Break::RenewAnyLease) {
                token = record.token;
            }
        }
        let nothing = Bytes::new();
        let checkpoint = match checkpoint {
            None if self.has(Break::CheckpointCleared) => Some(&nothing),
            given => given,
        };
        protocol::renew(found, fence, token, checkpoint, now)
    }

    pub(super) fn settle(
        self,
        found: Option<&Record>,
        (fence, token): (Fence, Token),
        settlement: &Settlement,
        now: Timestamp,
    ) -> Decision<Settled> {
        if self.0.is_empty() {
            return protocol::settle(found, fence, token, settlement, now);
        }
        let (mut fence, mut token) = (fence, token);
        let mut seen = found.cloned();
        if let Some(record) = &mut seen {
            if self.has(Break::SettleAnyLease) || self.has(Break::SettleAnyFence) {
                fence = record.fence;
            }
            if self.has(Break::SettleAnyLease) || self.has(Break::SettleAnyToken) {
                token = record.token;
            }
            if self.has(Break::SettleTwice) {
                record.state = State::Running;
            }
            let late = record.is_lapsed(now) || record.state == State::InDoubt;
            if self.has(Break::LateSettleRefused) && late {
                return Decision {
                    answer: Settled::Lost,
                    write: None,
                };
            }
        }
        protocol::settle(seen.as_ref(), fence, token, settlement, now)
    }

    pub(super) fn resolve(
        self,
        found: Option<&Record>,
        fence: Fence,
        resolution: &Resolution,
        now: Timestamp,
    ) -> Decision<Resolved> {
        if self.0.is_empty() {
            return protocol::resolve(found, fence, resolution, now);
        }
        let mut fence = fence;
        let mut seen = found.cloned();
        if let Some(record) = &mut seen {
            if self.has(Break::ResolveAnyFence) {
                fence = record.fence;
            }
            if self.has(Break::ResolveAnyState) {
                record.state = State::InDoubt;
            }
        }
        protocol::resolve(seen.as_ref(), fence, resolution, now)
    }

    /// Whether a sweep removes `record` (P21). The rule is one line, and every store has its own.
    pub(super) fn sweeps(self, record: &Record, now: Timestamp) -> bool {
        record.is_expired(now) || self.has(Break::SweepTakesLapsed) && record.is_lapsed(now)
    }
}
