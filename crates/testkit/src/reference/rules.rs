//! The rules P5–P22 and P43 for one key, written from the specification.

use bytes::Bytes;
use semel_core::{
    Busy, Claim, Claimed, CrashPolicy, Fence, Grant, Mismatch, Record, Renewed, Resolution,
    Resolved, Restored, Settled, Settlement, State, Timestamp, Token,
};

use super::entry::{KeySubject, ReferenceEntry, micros, span};
use super::tally::Rule;

/// One key: what is kept for it, and the largest fence it ever had.
#[derive(Clone, Debug)]
pub struct KeyModel<'a> {
    subject: &'a KeySubject,
    entry: Option<ReferenceEntry>,
    last_fence: u64,
    /// What was last deleted.
    taken: Option<ReferenceEntry>,
}

impl<'a> KeyModel<'a> {
    /// A key that nobody has used.
    #[must_use]
    pub const fn new(subject: &'a KeySubject) -> Self {
        Self {
            subject,
            entry: None,
            last_fence: 0,
            taken: None,
        }
    }

    /// Whose key it is.
    #[must_use]
    pub const fn subject(&self) -> &'a KeySubject {
        self.subject
    }

    /// What is kept, expired or not.
    #[must_use]
    pub const fn entry(&self) -> Option<&ReferenceEntry> {
        self.entry.as_ref()
    }

    fn live(&mut self, now: u64) -> Option<&mut ReferenceEntry> {
        self.entry.as_mut().filter(|entry| now < entry.expiry())
    }

    /// The claim table, row by row.
    pub fn claim(&mut self, ask: &Claim, now: u64) -> (Rule, Claimed) {
        let Some(entry) = &mut self.entry else {
            return self.begin(Rule::ClaimNew, ask, now);
        };
        if now >= entry.expiry() {
            return self.begin(Rule::ClaimExpired, ask, now);
        }
        if entry.state == State::Released {
            return self.begin(Rule::ClaimReleased, ask, now);
        }
        let (running, lapsed) = (entry.state == State::Running, entry.lapsed(now));
        if entry.fingerprint != ask.fingerprint {
            let rule = if running {
                Rule::MismatchRunning
            } else {
                Rule::Mismatch
            };
            let original = Mismatch {
                fingerprint: entry.fingerprint,
                requested_at: Some(Timestamp::from_micros(entry.first_claimed)),
            };
            return (rule, Claimed::Mismatch(original));
        }
        if running && entry.token == ask.token.0 {
            let rule = if lapsed {
                Rule::ClaimAgainLate
            } else {
                Rule::ClaimAgain
            };
            return (rule, self.won());
        }
        if running && !lapsed {
            let (since, retry_after) = (
                span(now - entry.first_claimed),
                span(entry.lease_end() - now),
            );
            return (
                Rule::Busy,
                Claimed::Busy(Busy {
                    since,
                    attempt: entry.attempt,
                    retry_after,
                }),
            );
        }
        if running && entry.may_be_taken_over() {
            return self.take_over(ask, now);
        }
        if running {
            let rule = if entry.hold {
                Rule::HeldDoubt
            } else {
                Rule::AttemptsDoubt
            };
            entry.state = State::InDoubt;
            entry.written = now;
            return (rule, entry.in_doubt());
        }
        if entry.state == State::InDoubt {
            return (Rule::Doubt, entry.in_doubt());
        }
        entry.replay(now)
    }

    fn next_fence(&mut self, now: u64) -> u64 {
        self.last_fence = (self.last_fence + 1).max(now);
        self.last_fence
    }

    /// P5: a first run, on the terms of this claim.
    fn begin(&mut self, rule: Rule, ask: &Claim, now: u64) -> (Rule, Claimed) {
        self.entry = Some(ReferenceEntry {
            state: State::Running,
            hold: ask.terms.crash() == CrashPolicy::Hold,
            fence: self.next_fence(now),
            token: ask.token.0,
            attempt: 1,
            most_attempts: ask.terms.max_attempts(),
            fingerprint: ask.fingerprint,
            lease: micros(ask.terms.lease()),
            retention: micros(ask.terms.retention()),
            first_claimed: now,
            written: now,
            checkpoint: Bytes::new(),
            answer: None,
        });
        (rule, self.won())
    }

    /// P9: the next run. Policy and number of attempts stay (P13), and so does the checkpoint.
    fn take_over(&mut self, ask: &Claim, now: u64) -> (Rule, Claimed) {
        let fence = self.next_fence(now);
        let entry = self.entry.as_mut().expect("a lapsed lease");
        entry.fence = fence;
        entry.token = ask.token.0;
        entry.attempt += 1;
        entry.lease = micros(ask.terms.lease());
        entry.retention = micros(ask.terms.retention());
        entry.written = now;
        let fresh = entry.checkpoint.is_empty();
        (
            if fresh {
                Rule::Takeover
            } else {
                Rule::TakeoverProgress
            },
            self.won(),
        )
    }

    fn won(&self) -> Claimed {
        let entry = self.entry.as_ref().expect("a claim that won");
        Claimed::Won(Grant {
            identity: self.subject.identity,
            fence: Fence(entry.fence),
            token: Token(entry.token),
            attempt: entry.attempt,
            crash: entry.policy(),
            checkpoint: entry.checkpoint.clone(),
            lease: span(entry.lease),
            memo: Bytes::new(),
        })
    }

    fn owned(&mut self, lease: &Grant, now: u64) -> Option<&mut ReferenceEntry> {
        let (fence, token) = (lease.fence.0, lease.token.0);
        self.live(now)
            .filter(|entry| entry.fence == fence && entry.token == token)
    }

    /// P14, P15.
    pub fn renew(
        &mut self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
        now: u64,
    ) -> (Rule, Renewed) {
        let Some(entry) = self.owned(lease, now) else {
            return (Rule::RenewLost, Renewed::Lost);
        };
        if entry.state != State::Running {
            return (Rule::RenewSettled, Renewed::Lost);
        }
        let late = entry.lapsed(now);
        entry.written = now;
        if let Some(checkpoint) = checkpoint {
            entry.checkpoint = checkpoint.clone();
        }
        let rule = match (late, checkpoint) {
            (true, _) => Rule::RenewedLate,
            (false, Some(_)) => Rule::Checkpointed,
            (false, None) => Rule::Renewed,
        };
        (rule, Renewed::Held)
    }

    /// P16, P17, P18.
    pub fn settle(&mut self, lease: &Grant, settlement: &Settlement, now: u64) -> (Rule, Settled) {
        let (state, answer, timely) = match settlement {
            Settlement::Complete(answer) => (State::Completed, Some(answer), Rule::Completed),
            Settlement::Fail(answer) => (State::Failed, Some(answer), Rule::Failed),
            Settlement::Release => (State::Released, None, Rule::Released),
            Settlement::Doubt => (State::InDoubt, None, Rule::Doubted),
        };
        let Some(entry) = self.owned(lease, now) else {
            return (Rule::SettleLost, Settled::Lost);
        };
        if entry.says(state, answer) {
            return (Rule::SettledAgain, Settled::Done);
        }
        let rule = match entry.state {
            State::Completed | State::Failed | State::Released => {
                return (Rule::SettledOther, Settled::Lost);
            }
            State::InDoubt => Rule::SettledDoubt,
            State::Running if entry.lapsed(now) => Rule::SettledLate,
            State::Running => timely,
        };
        entry.end(state, answer, now);
        (rule, Settled::Done)
    }

    /// P19.
    pub fn resolve(&mut self, fence: Fence, how: &Resolution, now: u64) -> (Rule, Resolved) {
        let (state, answer) = match how {
            Resolution::Complete(answer) => (State::Completed, Some(answer)),
            Resolution::Fail(answer) => (State::Failed, Some(answer)),
            Resolution::Release => (State::Released, None),
        };
        let Some(entry) = self.live(now) else {
            return (Rule::NotInDoubt, Resolved::NotInDoubt);
        };
        if entry.fence != fence.0 {
            return (Rule::WrongDoubt, Resolved::NotInDoubt);
        }
        if entry.says(state, answer) {
            return (Rule::ResolvedAgain, Resolved::Done);
        }
        if !entry.doubtful(now) {
            return (Rule::NotInDoubt, Resolved::NotInDoubt);
        }
        let lapse = entry.state == State::Running;
        entry.end(state, answer, now);
        (
            if lapse {
                Rule::ResolvedLapse
            } else {
                Rule::Resolved
            },
            Resolved::Done,
        )
    }

    /// What a reader finds (P20).
    #[must_use]
    pub fn read(&self, now: u64) -> (Rule, Option<Record>) {
        match &self.entry {
            None => (Rule::ReadAbsent, None),
            Some(entry) if now >= entry.expiry() => (Rule::ReadExpired, None),
            Some(entry) => (Rule::Read, Some(entry.record(self.subject))),
        }
    }

    /// Forgets the record; answers whether a live one was there. The last fence is not forgotten
    /// (P22).
    pub fn delete(&mut self, now: u64) -> (Rule, bool) {
        match self.entry.take() {
            Some(entry) if now < entry.expiry() => {
                self.taken = Some(entry);
                (Rule::Deleted, true)
            }
            _ => (Rule::DeletedNothing, false),
        }
    }

    /// What was last deleted, unless it could come back with a fence smaller than one since
    /// forgotten: stores may forget at different times.
    #[must_use]
    pub fn taken(&self) -> Option<(&ReferenceEntry, Record)> {
        let forgotten = self.entry.is_none();
        let entry = self.taken.as_ref();
        let entry = entry.filter(|entry| !forgotten || entry.fence == self.last_fence)?;
        Some((entry, entry.record(self.subject)))
    }

    /// Brings a record back (P43).
    pub fn restore(&mut self, mut back: ReferenceEntry, now: u64) -> (Rule, Restored) {
        let subject = self.subject;
        let mut rule = Rule::Restored;
        if let Some(live) = self.live(now) {
            let as_brought = ReferenceEntry {
                fence: back.fence,
                ..live.clone()
            };
            if live.fence >= back.fence && as_brought.record(subject) == back.record(subject) {
                return (Rule::RestoredAgain, Restored::Written);
            }
            if live.state != State::Released {
                return (Rule::RestoreKept, Restored::Kept);
            }
            rule = Rule::RestoredOver;
        }
        if now >= back.expiry() {
            return (Rule::RestoreExpired, Restored::Kept);
        }
        if let Some(found) = &self.entry {
            back.fence = back.fence.max(found.fence);
        }
        self.entry = Some(back);
        (rule, Restored::Written)
    }

    /// Removes the record if it has expired (P21); answers whether it had.
    pub fn sweep(&mut self, now: u64) -> bool {
        self.entry.take_if(|entry| now >= entry.expiry()).is_some()
    }
}
