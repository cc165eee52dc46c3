//! What a worker asks for and gets.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use semel_core::Terms;

use crate::error::Error;
use crate::job::{JobId, RequestId, check_name};

/// The most kinds that a worker asks for at once.
pub const MAX_KINDS: usize = 16;

/// The most jobs that a worker gets at once.
pub const MAX_LEASED: usize = 100;

/// The mark of a worker's lease. Never shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub u128);

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(…)")
    }
}

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct LeaseAsk {
    /// Whose jobs.
    pub tenant: String,
    /// Of which kinds.
    pub kinds: Vec<String>,
    /// Who asks, for people.
    pub worker: String,
    /// At most so many.
    pub most: usize,
    /// For how long each is the worker's, unless it says more.
    pub span: Duration,
}

impl LeaseAsk {
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
}

pub(crate) fn check_span(span: Duration) -> Result<(), Error> {
    if (Terms::MIN_LEASE..=Terms::MAX_LEASE).contains(&span) {
        return Ok(());
    }
    Err(Error::Invalid("a lease is 10 ms to 24 h"))
}

/// A job that is a worker's, for a while.
#[derive(Clone, Debug)]
pub struct Leased {
    /// Which. The same at every start: pass it on to other systems as their idempotency key.
    pub id: JobId,
    /// Of its first submission.
    pub request_id: RequestId,
    /// What is to be done.
    pub kind: String,
    /// With what: JSON, as it came.
    pub params: Bytes,
    /// The how-manieth start this is.
    pub attempt: u16,
    /// How often it may be started.
    pub max_attempts: u16,
    /// The mark of this lease.
    pub token: LeaseToken,
    /// For how long it is the worker's, from when it was taken.
    pub span: Duration,
}
