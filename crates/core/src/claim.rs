//! The values that go into and come out of a store: [`Claim`], [`Claimed`], [`Settlement`] and kin.
//!
//! Losing is one of the answers, so that whoever asks has to look at it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;
use crate::record::{Answer, CrashPolicy, Fence, State, Token};

/// Asks to be the one who runs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Whose record.
    pub identity: Identity,
    /// Digest of the payload.
    pub fingerprint: Fingerprint,
    /// The mark of this asker. Sent again after a lost reply, the claim keeps its token.
    pub token: Token,
    /// The terms on which to run, if this claim is the first.
    pub terms: Terms,
    /// Which secret made identity and fingerprint.
    pub secret_id: u16,
    /// For people: where the key lives.
    pub namespace: Namespace,
    /// For people: how the key begins.
    pub hint: KeyHint,
    /// Whether the asker has reason to think that the key was claimed before: it waited, or its caller says that it
    /// asks again. A store may then look before it writes; the answer is the same (P4).
    pub retry: bool,
}

/// The terms of a claim: how long, and what if the owner vanishes.
///
/// Checked once, here; whole milliseconds, so that every store keeps them exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    lease: Duration,
    retention: Duration,
    crash: CrashPolicy,
    max_attempts: u16,
}

impl Terms {
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);
    /// The longest lease.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
    /// The longest retention: ten years.
    pub const MAX_RETENTION: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

    /// Checks the terms.
    ///
    /// # Errors
    /// [`TermsError`] where a value is out of bounds, or the retention is shorter than the lease: a
    /// record that expired under its owner would let a second one in.
    pub fn new(
        lease: Duration,
        retention: Duration,
        crash: CrashPolicy,
        max_attempts: u16,
    ) -> Result<Self, TermsError> {
        let whole_millis =
            |d: Duration| Duration::from_millis(d.as_millis().try_into().unwrap_or(u64::MAX));
        let (lease, retention) = (whole_millis(lease), whole_millis(retention));
        if lease < Self::MIN_LEASE || lease > Self::MAX_LEASE {
            return Err(TermsError::Lease);
        }
        if retention > Self::MAX_RETENTION {
            return Err(TermsError::Retention);
        }
        if retention < lease {
            return Err(TermsError::RetentionUnderLease);
        }
        if max_attempts == 0 {
            return Err(TermsError::NoAttempts);
        }
        Ok(Self {
            lease,
            retention,
            crash,
            max_attempts,
        })
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

    /// What becomes of the key when its owner vanishes.
    #[must_use]
    pub const fn crash(&self) -> CrashPolicy {
        self.crash
    }

    /// The most runs begun before a lapsed lease means "in doubt".
    #[must_use]
    pub const fn max_attempts(&self) -> u16 {
        self.max_attempts
    }
}

/// Why terms were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// The lease is out of bounds.
    #[error("the lease must be between 10 ms and 24 h")]
    Lease,
    /// The retention is out of bounds.
    #[error("the retention must be at most ten years")]
    Retention,
    /// The retention is shorter than the lease.
    #[error("the retention must not be shorter than the lease")]
    RetentionUnderLease,
    /// No attempt is allowed.
    #[error("at least one attempt must be allowed")]
    NoAttempts,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Run it: the lease is yours (P5, P6, P9).
    Won(Grant),
    /// Somebody else runs it now (P8).
    Busy(Busy),
    /// It is done; here is the answer (P12).
    Replay(Replay),
    /// The key was used with another payload (P7).
    Mismatch,
    /// Nobody knows whether it happened (P10, P11).
    InDoubt(InDoubt),
}

/// The right to run, until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose record.
    pub identity: Identity,
    /// Larger than that of any earlier lease of the key.
    pub fence: Fence,
    /// The mark of the owner.
    pub token: Token,
    /// Runs begun since the key was last free, this one included.
    pub attempt: u16,
    /// What the last owner kept for this one. Empty for nothing.
    pub checkpoint: Bytes,
    /// How long the lease lives after each write.
    pub lease: Duration,
    /// The stored crash policy, which may differ from the one asked for (P13, P36).
    pub crash: CrashPolicy,
    /// What the store wants to be given back with every call under this lease, to save itself a look.
    /// Means nothing to anybody else; a lease that comes back without it is as good.
    pub memo: Bytes,
}

/// Somebody else runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// How long ago the key was first claimed.
    pub since: Duration,
    /// Runs begun, the current one included.
    pub attempt: u16,
    /// When the current lease ends, unless renewed: asking earlier is only worth it after a wake-up.
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
    /// When the key was first claimed, on the store's clock.
    pub requested_at: Timestamp,
    /// When the answer was stored, on the store's clock.
    pub settled_at: Timestamp,
    /// How much longer the record lives.
    pub expires_in: Duration,
}

/// An operation of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// The fence of the run whose outcome is unknown: a resolution names it.
    pub fence: Fence,
    /// Runs begun.
    pub attempt: u16,
    /// What the last owner kept. Empty for nothing.
    pub checkpoint: Bytes,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease lives for its full span again (P14).
    Held,
    /// The lease isn't yours any more. Nothing was changed.
    Lost,
}

/// How an owner ends its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It happened; keep and replay the answer. Shared, as it may have to be sent again.
    Complete(Arc<Answer>),
    /// It failed for good; keep and replay the failure.
    Fail(Arc<Answer>),
    /// Free the key. Only where the effect provably did not happen, or may happen again (P36).
    Release,
    /// The outcome isn't known.
    Doubt,
}

impl Settlement {
    /// The state that a record is in afterwards.
    #[must_use]
    pub const fn state(&self) -> State {
        match self {
            Self::Complete(_) => State::Completed,
            Self::Fail(_) => State::Failed,
            Self::Release => State::Released,
            Self::Doubt => State::InDoubt,
        }
    }

    /// The answer to keep, where there is one.
    #[must_use]
    pub const fn answer(&self) -> Option<&Arc<Answer>> {
        match self {
            Self::Complete(answer) | Self::Fail(answer) => Some(answer),
            Self::Release | Self::Doubt => None,
        }
    }
}

/// The answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The record says so now, or said so already (P16, P18).
    Done,
    /// The lease isn't yours any more. Nothing was changed.
    Lost,
}

/// How an operator, or a recover hook, ends a doubt (P19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It did happen; keep and replay this answer.
    Complete(Arc<Answer>),
    /// It failed for good; keep and replay this failure.
    Fail(Arc<Answer>),
    /// It did not happen; free the key.
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
    /// The doubt is ended, or was already ended in the same way.
    Done,
    /// There is no doubt under that fence. Nothing was changed.
    NotInDoubt,
}

/// The answer to a record that is brought from another store (P43).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It stands here now, or stood here already.
    Written,
    /// Something else stands here, or it has expired. Nothing was changed.
    Kept,
}
