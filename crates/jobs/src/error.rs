//! [`Error`]: why a call got no answer.

use semel_core::Code;
use std::time::Duration;

use semel_core::engine::Problem;
use semel_core::{ClaimTermsError, StoreError};

/// Why a call got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key belongs to a job with other parameters.
    #[error("this key belongs to a job with other parameters; use a new key for a new job")]
    Conflict,
    /// The queue is full: a limit on jobs is reached.
    #[error(
        "the queue is full for this {full}; submit again in {retry_after:?}, with the same key"
    )]
    Full {
        /// The limit that is reached: of the kind, or of the client.
        full: &'static str,
        /// How long to wait before a retry.
        retry_after: Duration,
    },
    /// The submitter's quota is used up, and the job is new.
    #[error("your quota of idempotency keys is used up; nothing was enqueued")]
    Quota,
    /// The worker's lease on the job is lost, or never existed.
    #[error("the job is not leased to this worker any more; nothing was changed")]
    LeaseLost,
    /// The job doesn't exist.
    #[error("the job doesn't exist, or was removed after its retention")]
    NotFound,
    /// Only dead letters can be retried.
    #[error("only dead-lettered jobs can be retried; this job is not one")]
    NotDead,
    /// The key of a dead letter was submitted again meanwhile.
    #[error("the key of this job was submitted again, and belongs to another job now")]
    Superseded,
    /// A value of the request is out of bounds.
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
    /// The stable code of the error, for problem documents, logs and metrics.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Conflict => Code::Conflict,
            Self::Full { .. } => Code::JobsQueueFull,
            Self::Quota => Code::QuotaExceeded,
            Self::LeaseLost => Code::JobsLeaseLost,
            Self::NotFound => Code::NotFound,
            Self::NotDead | Self::Superseded => Code::JobsNotDead,
            Self::Invalid(_) | Self::Params(_) => Code::RequestInvalid,
            Self::Problem(problem) => problem.code(),
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the same call may get an answer later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Quota => true,
            Self::Problem(problem) => problem.is_retryable(),
            Self::Store(error) => error.is_transient(),
            _ => false,
        }
    }
}

impl From<ClaimTermsError> for Error {
    fn from(error: ClaimTermsError) -> Self {
        Self::Problem(error.into())
    }
}
