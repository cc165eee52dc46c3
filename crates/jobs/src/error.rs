//! [`Error`]: why a call got no answer.

use std::time::Duration;

use semel_core::engine::Problem;
use semel_core::{StoreError, TermsError};

/// Why a call got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key stands for a job with other parameters.
    #[error("this key stands for a job with other parameters; use a new key for a new job")]
    Conflict,
    /// As many jobs wait as may.
    #[error(
        "the queue is full for this {full}; submit again in {retry_after:?}, with the same key"
    )]
    Full {
        /// Kind or client.
        full: &'static str,
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// The job isn't the worker's any more, or never was.
    #[error("the job is not this worker's any more; nothing was changed")]
    LeaseLost,
    /// There is no such job.
    #[error("there is no such job, or it was swept")]
    NotFound,
    /// Only dead letters can be retried.
    #[error("only a dead letter can be retried, and this job is none")]
    NotDead,
    /// The key of a dead letter was submitted again meanwhile.
    #[error("the key of this job was submitted again, and stands for another job now")]
    Superseded,
    /// What was asked for breaks a bound.
    #[error("{0}")]
    Invalid(&'static str),
    /// The parameters can't be read as JSON, or can't be compared.
    #[error("the parameters can't be used: {0}")]
    Params(String),
    /// The engine has no answer.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The store gave no answer, or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// A stable word for it, for problem documents, logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict => "idempotency_conflict",
            Self::Full { .. } => "jobs_queue_full",
            Self::LeaseLost => "jobs_lease_lost",
            Self::NotFound => "not_found",
            Self::NotDead | Self::Superseded => "jobs_not_dead",
            Self::Invalid(_) | Self::Params(_) => "request_invalid",
            Self::Problem(problem) => problem.code(),
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the same call may get an answer later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Problem(problem) => problem.is_retryable(),
            Self::Store(error) => error.is_transient(),
            _ => false,
        }
    }
}

impl From<TermsError> for Error {
    fn from(error: TermsError) -> Self {
        Self::Problem(error.into())
    }
}
