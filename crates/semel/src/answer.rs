//! The answer to an operation's caller, [`TypedAnswer`] or [`Error`], and the failure of its
//! effect, [`Failure`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel_core::engine::Problem;
use semel_core::{CanonicalError, KeyError, NamespaceError, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The answer to an operation: the same for every caller of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedAnswer<T> {
    /// The value that the effect returned.
    pub value: T,
    /// Whether this is the stored answer of an earlier run.
    pub replayed: bool,
    /// The number of the run that answered: 1, or more if earlier owners crashed.
    pub attempt: u16,
    /// When the key was first claimed, on the store's clock; for a fresh run, now.
    pub original_time: SystemTime,
}

pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at.as_micros())
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// How an effect fails. Any error turns into the kind that may be retried, by `?` or `into()`.
///
/// | made by | what it says | `takeover` | `hold` |
/// |---|---|---|---|
/// | `?`, `Failure::retry` | failed, may have happened in part | the next call runs it again | in doubt |
/// | [`Failure::no_effect`] | failed before anything happened | the next call runs it again | the same |
/// | [`Failure::reject`] | failed for good | kept, and replayed to every caller | the same |
/// | [`Failure::unknown`] | sent, and no reply came | in doubt | in doubt |
///
/// If the effect ran without protection, no key can be in doubt: its caller gets [`Error::Unknown`]
/// instead.
#[derive(Debug)]
pub struct Failure(pub(crate) FailureKind);

#[derive(Debug)]
pub(crate) enum FailureKind {
    Retry(Cause),
    NoEffect(Cause),
    Reject(serde_json::Value),
    Unknown(Cause),
}

impl Failure {
    /// Failed, and may have happened in part.
    pub fn retry(cause: impl Into<Cause>) -> Self {
        Self(FailureKind::Retry(cause.into()))
    }

    /// Failed before anything happened: say this only if that is certain.
    pub fn no_effect(cause: impl Into<Cause>) -> Self {
        Self(FailureKind::NoEffect(cause.into()))
    }

    /// Failed for good: a declined card, a rule broken. `reason` is kept and replayed.
    pub fn reject(reason: impl Serialize) -> Self {
        let reason = serde_json::to_value(reason);
        Self(FailureKind::Reject(
            reason.unwrap_or_else(|error| error.to_string().into()),
        ))
    }

    /// The outcome is unknown: a call was sent, and no reply came.
    pub fn unknown(cause: impl Into<Cause>) -> Self {
        Self(FailureKind::Unknown(cause.into()))
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

/// A final failure, the same for every caller of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// The reason that the effect gave; `null` if the stored one isn't JSON, or was too large to
    /// keep.
    pub reason: serde_json::Value,
    /// Whether this is the stored failure of an earlier run.
    pub replayed: bool,
}

impl Rejection {
    /// The reason, as the type that the effect gave.
    ///
    /// # Errors
    /// If it isn't of that type.
    pub fn reason<R: DeserializeOwned>(&self) -> Result<R, serde_json::Error> {
        serde_json::from_value(self.reason.clone())
    }
}

/// Why an operation has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is invalid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Environment, tenant or scope can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The subject can't be used.
    #[error(transparent)]
    Subject(#[from] semel_core::DataSubjectError),
    /// The payload can't be turned into JSON.
    #[error("the payload could not be turned into JSON; nothing was started")]
    Payload(#[source] serde_json::Error),
    /// The payload has no canonical form.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// There is no answer to give: busy, another payload, in doubt, store down.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The effect failed for good. Every caller of this key gets the same.
    #[error("the operation failed for good: {}", .0.reason)]
    Rejected(Rejection),
    /// The effect failed. The key is free: calling again runs it again.
    #[error("the operation failed; calling again with the same key runs it again")]
    Failed(#[source] Cause),
    /// The effect failed, and it is unknown whether it happened. Calling again won't run it.
    #[error("the operation may or may not have taken effect; its key is in doubt until resolved")]
    InDoubt(#[source] Cause),
    /// The effect ran without protection (mode `off` or `observe`, fail-open), and it is unknown
    /// whether it happened. Calling again may run it again: find out first.
    #[error(
        "the operation ran unprotected and may or may not have taken effect; find out before calling again"
    )]
    Unknown(#[source] Cause),
    /// The operation is done, but its answer was too large to keep.
    #[error("the operation is done, but its answer ({bytes} bytes) was too large to keep")]
    NotKept {
        /// How large it was.
        bytes: u64,
    },
    /// The store and the caller's transaction aren't in the same database.
    #[error(
        "run_in needs the records in the same database as the transaction: open semel with a postgres:// or mysql:// URL"
    )]
    NotTransactional,
    /// The stored answer has another type than the caller's.
    #[error("the operation is done, but its stored answer is of another type")]
    Answer(#[source] serde_json::Error),
}

impl Error {
    /// Whether calling again, with the same key and payload, may get an answer.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_retryable(),
            Self::Failed(_) => true,
            _ => false,
        }
    }
}
