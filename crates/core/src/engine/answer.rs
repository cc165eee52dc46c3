//! What goes out of the engine: [`Response`], and what an effect reports back into it: [`Report`].

use std::time::Duration;

use crate::claim::{InDoubt, Replay};
use crate::error::{StoreError, StoreErrorKind};
use crate::event::{BusyReason, Ending, VerdictKind};
use crate::record::{Answer, Fence, State};

/// What an effect reports: a value for the caller who ran it, and a verdict for the record.
#[derive(Debug)]
pub struct Report<V> {
    /// Given to the caller who ran it. Where others must get the same, the verdict carries it too.
    pub value: V,
    /// Decides the settlement (P36).
    pub verdict: Verdict,
}

/// What became of the effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It happened. Keep and replay this answer.
    Complete(Answer),
    /// It failed for good. Keep and replay this failure.
    Fail(Answer),
    /// It failed, and may or may not have happened in part. Run again under `takeover`, in doubt
    /// under `hold`.
    Retry,
    /// It failed before anything happened. Free the key.
    NoEffect,
    /// Nobody knows: sent, and no reply came. In doubt.
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
    /// There is no answer to give. Says why, and whether to ask again.
    Problem(Problem),
}

impl<V> Response<V> {
    pub(super) const fn ending(&self) -> Ending {
        match self {
            Self::Ran(_) => Ending::Ran,
            Self::Replayed(replayed) => Ending::Replayed(replayed.number),
            Self::Unprotected(_) => Ending::Unprotected,
            Self::Problem(problem) => Ending::Problem(problem.code()),
        }
    }
}

/// An effect that ran.
#[derive(Debug)]
pub struct Ran<V> {
    /// What the effect reported.
    pub value: V,
    /// Of the lease it ran under.
    pub fence: Fence,
    /// 1, or more where earlier owners vanished.
    pub attempt: u16,
    /// What the record says now.
    pub state: State,
}

/// An answer of an earlier run.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The answer and when it was first given.
    pub replay: Replay,
    /// The how-manieth replay of this record by this process; `None` where no local copy is kept.
    pub number: Option<u32>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The key was used with another payload.
    #[error("this key was already used with another payload; use a new key for a new request")]
    Mismatch,
    /// Another runs the same key.
    #[error("another request with this key is still running; ask again in {retry_after:?}")]
    Busy {
        /// Why it wasn't waited for, or no longer.
        why: BusyReason,
        /// When asking again is worth it.
        retry_after: Duration,
    },
    /// Nobody knows whether an earlier run happened.
    #[error(
        "an earlier request with this key may or may not have taken effect; \
         it waits to be resolved, asking again won't run it"
    )]
    InDoubt(InDoubt),
    /// The store gave no answer, so nothing was started.
    #[error("the request was not started because the store gave no answer; ask again")]
    Unavailable {
        /// What the store said; `None` while the breaker is open.
        #[source]
        source: Option<StoreError>,
        /// When asking again is worth it.
        retry_after: Duration,
    },
    /// There is a record, and it can't be read: damaged, of a newer version, or another key's (P24, P25).
    #[error(
        "the record of this key can't be read, so whether an earlier request took effect is not known; \
         nothing was started, and asking again won't run it"
    )]
    Unreadable {
        /// What the store said.
        source: StoreError,
    },
    /// The key was answered before, and that answer's body, which is kept elsewhere, doesn't come (P44).
    #[error(
        "this key was answered before, and the body of that answer doesn't come now; \
         nothing was started, ask again with the same key for it"
    )]
    BodyAway {
        /// What the store said.
        source: StoreError,
        /// When asking again is worth it.
        retry_after: Duration,
    },
    /// The claim won, but too late to start.
    #[error("the request was not started because the store took too long; ask again")]
    Late,
    /// The effect ran, and another took the key over meanwhile.
    #[error("the request outlived its lease and another took it over; ask again for its answer")]
    LeaseLost {
        /// Of the lease lost.
        fence: Fence,
    },
    /// The effect ran, and its outcome could not be recorded.
    #[error("the request ran, but its outcome could not be recorded; ask again with the same key")]
    Unrecorded {
        /// Of the lease.
        fence: Fence,
        /// What the store said.
        #[source]
        source: Option<StoreError>,
    },
    /// The effect panicked.
    #[error("the request failed unexpectedly; ask again with the same key")]
    Panicked,
    /// The runtime was shut down before the end.
    #[error("the process was shut down before the request ended; ask again with the same key")]
    ShutDown,
    /// The policy is out of bounds.
    #[error(transparent)]
    Policy(#[from] crate::claim::TermsError),
}

impl Problem {
    /// A stable word for it, for problem documents, logs and metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Mismatch => "idempotency_conflict",
            Self::Busy { .. } => "idempotency_in_flight",
            Self::InDoubt(_) => "idempotency_in_doubt",
            Self::Unavailable { .. } => "idempotency_store_unavailable",
            Self::Unreadable { source } | Self::BodyAway { source, .. } => source.code(),
            Self::Late => "idempotency_late",
            Self::LeaseLost { .. } => "idempotency_lease_lost",
            Self::Unrecorded { .. } => "idempotency_unrecorded",
            Self::Panicked => "idempotency_effect_panicked",
            Self::ShutDown => "idempotency_shut_down",
            Self::Policy(_) => "idempotency_policy",
        }
    }

    /// The store's error, to whoever asked before anything was started. `None` while the breaker is open.
    #[must_use]
    pub fn of_store(source: Option<StoreError>, retry_after: Duration) -> Self {
        match (source.as_ref().map(|source| source.kind), source) {
            (Some(StoreErrorKind::Record), Some(source)) => Self::Unreadable { source },
            (Some(StoreErrorKind::Body), Some(source)) => Self::BodyAway {
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
            Self::Mismatch | Self::InDoubt(_) | Self::Unreadable { .. } | Self::Policy(_)
        )
    }

    /// When asking again is worth it, where that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. }
            | Self::Unavailable { retry_after, .. }
            | Self::BodyAway { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}
