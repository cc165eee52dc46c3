//! The values that go into and come out of a store: [`Claim`], [`Claimed`], [`Settlement`] and
//! others.
//!
//! A lost claim or lease is a value, not an error, so that a caller can't overlook it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::data_subject::DataSubject;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;
use crate::record::{Answer, ByteCount, CrashPolicy, Fence, ReadableKeys, Record, State, Token};

/// A request to become the owner of a key and run its effect.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The key.
    pub identity: Identity,
    /// Digest of the payload.
    pub fingerprint: Fingerprint,
    /// The random mark of this claimant. A claim that is sent again after a lost reply keeps its
    /// token.
    pub token: Token,
    /// The terms of the run, if this claim is the first.
    pub terms: ClaimTerms,
    /// The id of the secret behind identity and fingerprint.
    pub secret_id: u16,
    /// The namespace of the key, for people.
    pub namespace: Namespace,
    /// The first characters of the key, for people.
    pub hint: KeyHint,
    /// Whether the key was probably claimed before: the claimant waited, or its caller says that
    /// this is a retry. A store may then read before it writes; the answer is the same (P4).
    pub retry: bool,
}

/// The terms of a claim: lease, retention, crash policy and attempts, the keys that the claimant
/// can decrypt with, and whose data the run leaves.
///
/// Checked once, here. Spans are whole milliseconds, so that every store keeps them exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimTerms {
    lease: Duration,
    retention: Duration,
    crash: CrashPolicy,
    max_attempts: u16,
    keys: ReadableKeys,
    data_subject: Option<DataSubject>,
}

impl ClaimTerms {
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);
    /// The longest lease.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
    /// The longest retention: ten years.
    pub const MAX_RETENTION: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

    /// Checks the terms.
    ///
    /// # Errors
    /// [`ClaimTermsError`] if a value is out of bounds, or the retention is shorter than the lease:
    /// a record that expired before its lease would let a second owner in.
    #[inline]
    pub fn new(
        lease: Duration,
        retention: Duration,
        crash: CrashPolicy,
        max_attempts: u16,
    ) -> Result<Self, ClaimTermsError> {
        let whole_millis =
            |d: Duration| Duration::from_millis(d.as_millis().try_into().unwrap_or(u64::MAX));
        let (lease, retention) = (whole_millis(lease), whole_millis(retention));
        if lease < Self::MIN_LEASE || lease > Self::MAX_LEASE {
            return Err(ClaimTermsError::Lease);
        }
        if retention > Self::MAX_RETENTION {
            return Err(ClaimTermsError::Retention);
        }
        if retention < lease {
            return Err(ClaimTermsError::RetentionUnderLease);
        }
        if max_attempts == 0 {
            return Err(ClaimTermsError::NoAttempts);
        }
        Ok(Self {
            lease,
            retention,
            crash,
            max_attempts,
            keys: ReadableKeys::default(),
            data_subject: None,
        })
    }

    /// The same terms, for a run that leaves data of this subject (P48).
    #[must_use]
    pub const fn with_data_subject(mut self, subject: DataSubject) -> Self {
        self.data_subject = Some(subject);
        self
    }

    /// Whose data the run leaves, if the caller says so.
    #[must_use]
    pub const fn data_subject(&self) -> Option<&DataSubject> {
        self.data_subject.as_ref()
    }

    /// The same terms, from a claimant with these keys (P46).
    #[must_use]
    pub const fn with_keys(mut self, keys: ReadableKeys) -> Self {
        self.keys = keys;
        self
    }

    /// The keys of the claimant; none unless [`with_keys`](Self::with_keys) says so.
    #[must_use]
    pub const fn keys(&self) -> &ReadableKeys {
        &self.keys
    }

    /// How long a lease lives after each write.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long the record lives after each write.
    #[must_use]
    pub const fn retention(&self) -> Duration {
        self.retention
    }

    /// What happens to the key if its owner crashes.
    #[must_use]
    pub const fn crash(&self) -> CrashPolicy {
        self.crash
    }

    /// The most runs begun before a lapsed lease leaves the key in doubt.
    #[must_use]
    pub const fn max_attempts(&self) -> u16 {
        self.max_attempts
    }
}

/// Why terms were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimTermsError {
    /// The lease is out of bounds.
    #[error("the lease must be between 10 ms and 24 h")]
    Lease,
    /// The retention is out of bounds.
    #[error("the retention must be at most ten years")]
    Retention,
    /// The retention is shorter than the lease.
    #[error("the retention must not be shorter than the lease")]
    RetentionUnderLease,
    /// The retention of answers is too short.
    #[error("the retention of answers must be at least 10 ms")]
    AnswerRetention,
    /// No attempt is allowed.
    #[error("at least one attempt must be allowed")]
    NoAttempts,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The claimant has the lease and runs the effect (P5, P6, P9).
    Won(Grant),
    /// Another owner runs the effect now (P8).
    Busy(Busy),
    /// The effect has run; this is its answer (P12).
    Replay(Replay),
    /// The key was used with another payload (P7).
    Mismatch(Mismatch),
    /// It is unknown whether the effect happened (P10, P11).
    InDoubt(InDoubt),
}

/// A lease as the store grants it: the right to run for a time. `Debug` shows the sizes of
/// checkpoint and memo, never their contents.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    /// The key.
    pub identity: Identity,
    /// Larger than the fence of any earlier lease of the key.
    pub fence: Fence,
    /// The random mark of the owner.
    pub token: Token,
    /// Runs begun since the key was last free, including this one.
    pub attempt: u16,
    /// The checkpoint that the last owner kept. Empty if there is none.
    pub checkpoint: Bytes,
    /// How long the lease lives after each write.
    pub lease: Duration,
    /// The stored crash policy, which may differ from the one in the claim (P13, P36).
    pub crash: CrashPolicy,
    /// Bytes that the store wants back with every call under this lease, to save itself a read.
    /// Opaque to everybody else. A lease without it is as valid.
    pub memo: Bytes,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("identity", &self.identity)
            .field("fence", &self.fence)
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("checkpoint", &ByteCount(&self.checkpoint))
            .field("lease", &self.lease)
            .field("crash", &self.crash)
            .field("memo", &ByteCount(&self.memo))
            .finish()
    }
}

impl Grant {
    /// The lease of a record's current or last owner, without a memo.
    #[must_use]
    pub fn from_record(identity: Identity, record: &Record) -> Self {
        Self {
            identity,
            fence: record.fence,
            token: record.token,
            attempt: record.attempt,
            checkpoint: record.checkpoint.clone(),
            lease: record.lease,
            crash: record.crash,
            memo: Bytes::new(),
        }
    }

    /// The lease that `claim` wins for the first run of its key, without a memo.
    #[must_use]
    pub const fn first_run(claim: &Claim, fence: Fence) -> Self {
        Self {
            identity: claim.identity,
            fence,
            token: claim.token,
            attempt: 1,
            checkpoint: Bytes::new(),
            lease: claim.terms.lease(),
            crash: claim.terms.crash(),
            memo: Bytes::new(),
        }
    }

    /// Sets [`fence`](Self::fence).
    #[must_use]
    pub const fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// Sets [`token`](Self::token).
    #[must_use]
    pub const fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// Sets [`checkpoint`](Self::checkpoint).
    #[must_use]
    pub fn with_checkpoint(mut self, checkpoint: Bytes) -> Self {
        self.checkpoint = checkpoint;
        self
    }

    /// Sets [`memo`](Self::memo).
    #[must_use]
    pub fn with_memo(mut self, memo: Bytes) -> Self {
        self.memo = memo;
        self
    }
}

/// Another owner runs the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// How long ago the key was first claimed.
    pub since: Duration,
    /// Runs begun, including the current one.
    pub attempt: u16,
    /// The rest of the current lease, unless it is renewed. An earlier retry only helps after a
    /// wake-up.
    pub retry_after: Duration,
}

/// An answer from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Completed or failed.
    pub state: State,
    /// The answer, byte for byte as it was first given.
    pub answer: Arc<Answer>,
    /// Runs begun until one answered.
    pub attempt: u16,
    /// The fence of the run that answered.
    pub fence: Fence,
    /// The mark of the owner that answered. It gives no right any more: the record is settled.
    pub token: Token,
    /// When the key was first claimed, on the store's clock.
    pub requested_at: Timestamp,
    /// When the answer was stored, on the store's clock.
    pub settled_at: Timestamp,
    /// How much longer the record lives.
    pub expires_in: Duration,
}

/// The first use of a key that came again with another payload. It is for events only: a caller
/// learns nothing about another payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The fingerprint of the first payload.
    pub fingerprint: Fingerprint,
    /// When the key was first claimed, on the store's clock; `None` if the answer came from this
    /// process alone.
    pub requested_at: Option<Timestamp>,
}

impl Mismatch {
    /// What the record says of the first use of its key.
    #[must_use]
    pub const fn from_record(record: &Record) -> Self {
        Self {
            fingerprint: record.fingerprint,
            requested_at: Some(record.created_at),
        }
    }

    /// The first use as this process knows it, without the store.
    #[must_use]
    pub const fn local(fingerprint: Fingerprint) -> Self {
        Self {
            fingerprint,
            requested_at: None,
        }
    }
}

/// An operation of unknown outcome. `Debug` shows the size of the checkpoint, never its contents.
#[derive(Clone, PartialEq, Eq)]
pub struct InDoubt {
    /// The fence of the run whose outcome is unknown. A resolution names it.
    pub fence: Fence,
    /// Runs begun.
    pub attempt: u16,
    /// The checkpoint that the last owner kept. Empty if there is none.
    pub checkpoint: Bytes,
}

impl fmt::Debug for InDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InDoubt")
            .field("fence", &self.fence)
            .field("attempt", &self.attempt)
            .field("checkpoint", &ByteCount(&self.checkpoint))
            .finish()
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease lives for its full span again (P14).
    Held,
    /// The lease belongs to another owner, or has ended. Nothing was changed.
    Lost,
}

/// How an owner ends its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The effect happened; keep and replay the answer. Shared, because it may have to be sent
    /// again.
    Complete(Arc<Answer>),
    /// The effect failed for good; keep and replay the failure.
    Fail(Arc<Answer>),
    /// Free the key. Only if the effect provably did not happen, or may happen again (P36).
    Release,
    /// The outcome is unknown.
    Doubt,
}

impl Settlement {
    /// The state of the record after this settlement.
    #[must_use]
    pub const fn state(&self) -> State {
        match self {
            Self::Complete(_) => State::Completed,
            Self::Fail(_) => State::Failed,
            Self::Release => State::Released,
            Self::Doubt => State::InDoubt,
        }
    }

    /// The answer to keep, if there is one.
    #[must_use]
    pub const fn answer(&self) -> Option<&Arc<Answer>> {
        match self {
            Self::Complete(answer) | Self::Fail(answer) => Some(answer),
            Self::Release | Self::Doubt => None,
        }
    }

    /// The size of the answer to keep in bytes: head and body. 0 without one.
    #[must_use]
    pub fn answer_bytes(&self) -> u64 {
        self.answer().map_or(0, |answer| {
            (answer.head.len() + answer.body.held_bytes()) as u64
        })
    }
}

/// The answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The settlement is recorded, now or by an earlier call (P16, P18).
    Done,
    /// The lease belongs to another owner, or has ended. Nothing was changed.
    Lost,
}

/// How an operator, or a recover hook, ends a doubt (P19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The effect happened; keep and replay this answer.
    Complete(Arc<Answer>),
    /// The effect failed for good; keep and replay this failure.
    Fail(Arc<Answer>),
    /// The effect did not happen; free the key.
    Release,
}

impl From<Resolution> for Settlement {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Complete(answer) => Self::Complete(answer),
            Resolution::Fail(answer) => Self::Fail(answer),
            Resolution::Release => Self::Release,
        }
    }
}

/// The answer to a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The doubt has ended, now or earlier in the same way.
    Done,
    /// There is no doubt under that fence. Nothing was changed.
    NotInDoubt,
}

/// The answer to a record that is copied from another store (P43).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The record is stored, now or by an earlier call.
    Written,
    /// The key has another record here, or the copied one has expired. Nothing was changed.
    Kept,
}
