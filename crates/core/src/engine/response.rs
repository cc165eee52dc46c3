//! The engine's answer to a caller, [`Response`], and an effect's report to the engine, [`Report`].

use std::time::Duration;

use crate::claim::{InDoubt, Replay};
use crate::code::Code;
use crate::error::{StoreError, StoreErrorKind};
use crate::event::{BusyReason, Ending, VerdictKind};
use crate::record::{Answer, Fence, State};

/// What an effect reports: a value for the caller who ran it, and a verdict for the record.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<V> {
    /// The value for the caller that ran the effect. If other callers must get it too, the verdict
    /// carries it as well.
    pub value: V,
    /// Decides the settlement (P36).
    pub verdict: Verdict,
}

impl<V> Report<V> {
    /// A report of this value and this verdict.
    #[must_use]
    pub const fn new(value: V, verdict: Verdict) -> Self {
        Self { value, verdict }
    }
}

/// The outcome of an effect, as the effect itself reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It happened. Keep and replay this answer.
    Complete(Answer),
    /// It failed for good. Keep and replay this failure.
    Fail(Answer),
    /// It failed, and may have happened in part. It runs again under `takeover`, and is in doubt
    /// under `hold`.
    Retry,
    /// It failed before anything happened. The key is free again.
    NoEffect,
    /// The outcome is unknown, for example because no reply came. The key is in doubt.
    Unknown,
}

impl Verdict {
    pub(super) const fn kind(&self) -> VerdictKind {
        match self {
            Self::Complete(_) => VerdictKind::Complete,
            Self::Fail(_) => VerdictKind::Fail,
            Self::Retry => VerdictKind::Retry,
            Self::NoEffect => VerdictKind::NoEffect,
            Self::Unknown => VerdictKind::Unknown,
        }
    }
}

/// What a caller gets.
#[derive(Debug)]
pub enum Response<V> {
    /// This caller's effect ran, and its settlement is recorded.
    Ran(Ran<V>),
    /// The answer of an earlier run.
    Replayed(Replayed),
    /// The effect ran without protection: mode `off`, `observe`, or fail-open.
    Unprotected(V),
    /// There is no answer to give. Says why, and whether a retry may help.
    Problem(Problem),
}

impl<V> Response<V> {
    pub(super) const fn ending(&self) -> Ending {
        match self {
            Self::Ran(ran) => Ending::Ran {
                bytes: ran.answer_bytes,
            },
            Self::Replayed(replayed) => replayed.ending(),
            Self::Unprotected(_) => Ending::Unprotected,
            Self::Problem(problem) => Ending::Problem(problem.code()),
        }
    }
}

/// An effect that ran.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ran<V> {
    /// What the effect reported.
    pub value: V,
    /// The fence of the lease that it ran under.
    pub fence: Fence,
    /// The number of this run: 1, or more if earlier owners crashed.
    pub attempt: u16,
    /// The state of the record now.
    pub state: State,
    /// The size of the kept answer in bytes: head and body.
    pub answer_bytes: u64,
}

/// An answer of an earlier run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replayed {
    /// The answer and when it was first given.
    pub replay: Replay,
    /// The 1-based number of this replay of the run's answer by this process; `None` if no local
    /// copy is kept. It starts again when the process forgets the key: after a restart, or when
    /// other answers need the cache's room.
    pub number: Option<u32>,
}

impl Replayed {
    pub(super) const fn ending(&self) -> Ending {
        Ending::Replayed {
            number: self.number,
            requested_at: self.replay.requested_at,
        }
    }

    /// The answer of a record, and the number of this replay if it is known.
    #[must_use]
    pub const fn new(replay: Replay, number: Option<u32>) -> Self {
        Self { replay, number }
    }
}

/// Why a caller gets no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The key was used with another payload.
    #[error("this key was already used with another payload; use a new key for a new request")]
    Mismatch,
    /// The key was derived from a part of the payload, and an earlier payload had the same part and
    /// another rest.
    #[error("an earlier request resembles this one, which was held: nothing was started")]
    Held,
    /// Another request with the same key is running.
    #[error("another request with this key is still running; retry in {retry_after:?}")]
    Busy {
        /// Why the caller doesn't wait, or no longer.
        why: BusyReason,
        /// How long to wait before a retry.
        retry_after: Duration,
    },
    /// The outcome of an earlier run is unknown.
    #[error(
        "an earlier request with this key may or may not have taken effect; \
         it has to be resolved first, a retry won't run it"
    )]
    InDoubt(InDoubt),
    /// The store gave no answer, so no effect was started.
    #[error("the request was not started because the store gave no answer; retry")]
    Unavailable {
        /// The store's error; `None` while the breaker is open.
        #[source]
        source: Option<StoreError>,
        /// How long to wait before a retry.
        retry_after: Duration,
    },
    /// The record can't be read: it is damaged, of a newer version, or another key's (P24, P25).
    #[error(
        "the record of this key can't be read, so it is not known whether an earlier request took effect; \
         nothing was started, and a retry won't run it"
    )]
    Unreadable {
        /// The store's error.
        source: StoreError,
    },
    /// The key was answered before, or a run of it kept a checkpoint, and that was erased since
    /// (P49).
    #[error(
        "this key was used before, and what its request left was erased since; \
         nothing was started, and a retry won't run it"
    )]
    Erased {
        /// The store's error.
        source: StoreError,
    },
    /// The key was answered before, and its answer is not kept any more, but its record is (P50).
    #[error(
        "this key was answered before, and the stored response has expired; \
         nothing was started, and a retry won't run it"
    )]
    AnswerExpired,
    /// The key was answered before, but the body of that answer, which is kept outside of the
    /// record, could not be loaded (P44).
    #[error(
        "this key was answered before, but the stored response body could not be loaded; \
         nothing was started, retry with the same key"
    )]
    BodyUnavailable {
        /// The store's error.
        source: StoreError,
        /// How long to wait before a retry.
        retry_after: Duration,
    },
    /// The claim won, but too late to start the effect.
    #[error("the request was not started because the store took too long; retry")]
    Late,
    /// The effect ran, and another owner took over the key meanwhile.
    #[error("the request outlived its lease and another one took it over; retry for its answer")]
    LeaseLost {
        /// The fence of the lost lease.
        fence: Fence,
    },
    /// The effect ran, and its outcome could not be recorded.
    #[error("the request ran, but its outcome could not be recorded; retry with the same key")]
    Unrecorded {
        /// The fence of the lease.
        fence: Fence,
        /// The store's error.
        #[source]
        source: Option<StoreError>,
    },
    /// The effect panicked.
    #[error("the request failed unexpectedly; retry with the same key")]
    Panicked,
    /// The runtime was shut down before the end.
    #[error("the process was shut down before the request ended; retry with the same key")]
    ShutDown,
    /// The policy is out of bounds.
    #[error(transparent)]
    Policy(#[from] crate::claim::ClaimTermsError),
}

impl Problem {
    /// The stable code of the problem, for problem documents, logs and metrics.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Mismatch => Code::Conflict,
            Self::Held => Code::Held,
            Self::Busy { .. } => Code::InFlight,
            Self::InDoubt(_) => Code::InDoubt,
            Self::Unavailable { .. } => Code::StoreUnavailable,
            Self::Unreadable { source } | Self::BodyUnavailable { source, .. } => source.code(),
            Self::Erased { .. } => Code::AnswerErased,
            Self::AnswerExpired => Code::AnswerExpired,
            Self::Late => Code::Late,
            Self::LeaseLost { .. } => Code::LeaseLost,
            Self::Unrecorded { .. } => Code::Unrecorded,
            Self::Panicked => Code::EffectPanicked,
            Self::ShutDown => Code::ShutDown,
            Self::Policy(_) => Code::Policy,
        }
    }

    /// The problem for a caller whose effect was not started because the store failed. `None` while
    /// the breaker is open.
    #[must_use]
    pub fn from_store_error(source: Option<StoreError>, retry_after: Duration) -> Self {
        match (source.as_ref().map(|source| source.kind), source) {
            (Some(StoreErrorKind::Record), Some(source)) => Self::Unreadable { source },
            (Some(StoreErrorKind::Erased), Some(source)) => Self::Erased { source },
            (Some(StoreErrorKind::Body), Some(source)) => Self::BodyUnavailable {
                source,
                retry_after,
            },
            (_, source) => Self::Unavailable {
                source,
                retry_after,
            },
        }
    }

    /// Whether the same request, with the same key, may get an answer later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Mismatch
                | Self::InDoubt(_)
                | Self::Unreadable { .. }
                | Self::Erased { .. }
                | Self::AnswerExpired
                | Self::Policy(_)
        )
    }

    /// How long to wait before a retry, if known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. }
            | Self::Unavailable { retry_after, .. }
            | Self::BodyUnavailable { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}
