//! The state of one key in the reference, and the predicates on it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Answer, AnswerBody, Claimed, CrashPolicy, Fence, Fingerprint, Identity, InDoubt, KeyHint,
    Namespace, Record, Replay, State, Timestamp, Token,
};

use super::tally::Rule;

/// Whose key it is, in the words that a record carries.
#[derive(Clone, Debug)]
pub struct KeySubject {
    /// The identity of namespace and key.
    pub identity: Identity,
    /// Where the key lives.
    pub namespace: Namespace,
    /// How the key begins.
    pub hint: KeyHint,
    /// Which secret made the identity.
    pub secret_id: u16,
}

/// What is kept. All times are microseconds on the store's clock.
#[derive(Clone, Debug)]
pub struct ReferenceEntry {
    pub(super) state: State,
    pub(super) hold: bool,
    pub(super) fence: u64,
    pub(super) token: u128,
    pub(super) attempt: u16,
    pub(super) most_attempts: u16,
    pub(super) fingerprint: Fingerprint,
    pub(super) lease: u64,
    pub(super) retention: u64,
    pub(super) first_claimed: u64,
    pub(super) written: u64,
    pub(super) checkpoint: Bytes,
    pub(super) answer: Option<Arc<Answer>>,
}

impl ReferenceEntry {
    /// The moment from which the lease has lapsed.
    #[must_use]
    pub const fn lease_end(&self) -> u64 {
        self.written + self.lease
    }

    /// The moment from which the record counts as absent (P20).
    #[must_use]
    pub const fn expiry(&self) -> u64 {
        self.written + self.retention
    }

    /// The fence of the last lease.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.fence
    }

    /// Running, and past the end of the lease.
    pub(super) fn lapsed(&self, now: u64) -> bool {
        self.state == State::Running && now >= self.lease_end()
    }

    /// Whether P9 and not P10 is for this record, once it has lapsed.
    pub(super) const fn may_be_taken_over(&self) -> bool {
        !self.hold && self.attempt < self.most_attempts
    }

    /// The stored policy (P13).
    pub(super) const fn policy(&self) -> CrashPolicy {
        if self.hold {
            CrashPolicy::Hold
        } else {
            CrashPolicy::Takeover
        }
    }

    /// In doubt, or lapsed under P10.
    pub(super) fn doubtful(&self, now: u64) -> bool {
        self.state == State::InDoubt || (self.lapsed(now) && !self.may_be_taken_over())
    }

    /// Where the record stands in a listing, and whether only the clock says so (P29).
    #[must_use]
    pub fn listed_as(&self, now: u64) -> (State, bool) {
        if self.doubtful(now) {
            (State::InDoubt, self.state == State::Running)
        } else {
            (self.state, false)
        }
    }

    pub(super) fn says(&self, state: State, answer: Option<&Arc<Answer>>) -> bool {
        self.state == state && self.answer.as_ref() == answer
    }

    pub(super) fn end(&mut self, state: State, answer: Option<&Arc<Answer>>, now: u64) {
        self.state = state;
        self.answer = answer.cloned();
        self.written = now;
        if state != State::InDoubt {
            self.checkpoint = Bytes::new();
        }
    }

    pub(super) fn in_doubt(&self) -> Claimed {
        let (fence, checkpoint) = (Fence(self.fence), self.checkpoint.clone());
        Claimed::InDoubt(InDoubt {
            fence,
            attempt: self.attempt,
            checkpoint,
        })
    }

    /// P12.
    pub(super) fn replay(&self, now: u64) -> (Rule, Claimed) {
        let answer = self.answer.clone().expect("a settled record has an answer");
        let rule = match (&answer.body, self.state) {
            (AnswerBody::Omitted { .. }, _) => Rule::ReplayOmitted,
            (_, State::Failed) => Rule::ReplayFailed,
            _ => Rule::ReplayCompleted,
        };
        let replay = Replay {
            state: self.state,
            attempt: self.attempt,
            fence: Fence(self.fence),
            token: Token(self.token),
            answer,
            requested_at: Timestamp::from_micros(self.first_claimed),
            settled_at: Timestamp::from_micros(self.written),
            expires_in: span(self.expiry() - now),
        };
        (rule, Claimed::Replay(replay))
    }

    /// The record that a store keeps.
    pub(super) fn record(&self, subject: &KeySubject) -> Record {
        Record {
            seal: subject.identity.seal(),
            state: self.state,
            crash: if self.hold {
                CrashPolicy::Hold
            } else {
                CrashPolicy::Takeover
            },
            fence: Fence(self.fence),
            token: Token(self.token),
            attempt: self.attempt,
            max_attempts: self.most_attempts,
            fingerprint: self.fingerprint,
            secret_id: subject.secret_id,
            lease: span(self.lease),
            retention: span(self.retention),
            created_at: Timestamp::from_micros(self.first_claimed),
            written_at: Timestamp::from_micros(self.written),
            namespace: subject.namespace.clone(),
            hint: subject.hint,
            checkpoint: self.checkpoint.clone(),
            answer: self.answer.clone(),
        }
    }
}

pub(super) fn span(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("terms of less than ten years")
}
