//! [`LeaseOptions`] and [`JobLease`]: how a worker asks for jobs, and what it gets.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use semel_core::ClaimTerms;

use crate::error::Error;
use crate::job::{JobId, RequestId, check_name};

/// The most kinds that a worker asks for at once.
pub const MAX_KINDS: usize = 16;

/// The most jobs that a worker gets at once.
pub const MAX_LEASED: usize = 100;

/// The random token of a worker's lease. `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub u128);

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(…)")
    }
}

/// A worker's request for jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// The tenant of the jobs.
    pub tenant: String,
    /// The kinds of the jobs.
    pub kinds: Vec<String>,
    /// The name of the worker, for people.
    pub worker: String,
    /// The most jobs to lease.
    pub most: usize,
    /// The span of each lease, unless it is extended by heartbeats.
    pub span: Duration,
}

impl LeaseOptions {
    /// One job of these kinds, for 30 s.
    #[must_use]
    pub fn new(worker: &str, kinds: &[&str]) -> Self {
        Self {
            tenant: String::new(),
            kinds: kinds.iter().map(ToString::to_string).collect(),
            worker: worker.to_owned(),
            most: 1,
            span: Duration::from_secs(30),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.kinds.is_empty() || self.kinds.len() > MAX_KINDS {
            return Err(Error::Invalid("a worker asks for 1 to 16 kinds"));
        }
        for kind in &self.kinds {
            check_name(
                kind,
                false,
                "a kind has 1 to 120 printable ASCII characters",
            )?;
        }
        check_name(
            &self.worker,
            false,
            "a worker has 1 to 120 printable ASCII characters",
        )?;
        check_name(
            &self.tenant,
            true,
            "a tenant has at most 120 printable ASCII characters",
        )?;
        if self.most == 0 || self.most > MAX_LEASED {
            return Err(Error::Invalid("a worker gets 1 to 100 jobs at once"));
        }
        check_span(self.span)
    }

    /// Sets [`tenant`](Self::tenant).
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets [`most`](Self::most).
    #[must_use]
    pub const fn with_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Sets [`span`](Self::span).
    #[must_use]
    pub const fn with_span(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }
}

pub(crate) fn check_span(span: Duration) -> Result<(), Error> {
    if (ClaimTerms::MIN_LEASE..=ClaimTerms::MAX_LEASE).contains(&span) {
        return Ok(());
    }
    Err(Error::Invalid("a lease is 10 ms to 24 h"))
}

/// A job that is leased to a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobLease {
    /// The id of the job. The same at every attempt: pass it to downstream systems as their
    /// idempotency key.
    pub id: JobId,
    /// The id of its first submission.
    pub request_id: RequestId,
    /// The kind of work.
    pub kind: String,
    /// The parameters: JSON, as submitted.
    pub params: Bytes,
    /// The 1-based number of this attempt.
    pub attempt: u16,
    /// The most attempts.
    pub max_attempts: u16,
    /// The token of this lease.
    pub token: LeaseToken,
    /// The span of the lease, counted from when the job was taken.
    pub span: Duration,
}
