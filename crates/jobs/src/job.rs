//! [`NewJob`], [`SubmitOutcome`] and [`Job`]: a submission, its outcome, and the stored job.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use semel_core::{Key, Timestamp};

use crate::error::Error;
pub use crate::id::{JobId, RequestId};

/// The largest parameters taken.
pub const MAX_PARAMS_BYTES: usize = 1024 * 1024;

/// The highest priority; 0 is the lowest.
pub const MAX_PRIORITY: u8 = 9;

/// The longest name of a kind, a client or a worker. A kind's leaves room for what its scope begins
/// with.
pub(crate) const MAX_NAME_BYTES: usize = 120;

/// The longest text of an error that is kept.
pub(crate) const MAX_ERROR_BYTES: usize = 2048;

/// A job to be submitted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewJob {
    /// The tenant. Empty if there is only one.
    pub tenant: String,
    /// The kind of work, by which workers ask for it.
    pub kind: String,
    /// The parameters: JSON.
    pub params: Bytes,
    /// The submitter's key; without one, each submission is a job of its own.
    pub key: Option<Key>,
    /// The scope of the key, in place of the kind.
    pub scope: Option<String>,
    /// The client that submits it, for limits and for people. May be empty.
    pub client: String,
    /// How long the answer is kept after the job has ended; `None` takes the queue's own.
    pub retention: Option<Duration>,
    /// How long to wait before the job may be started.
    pub delay: Duration,
    /// 0 to 9; higher is taken first.
    pub priority: u8,
    /// How often it may be started; `None` takes the queue's own.
    pub max_attempts: Option<u16>,
    /// Whether only an earlier job of the key is returned, and no new one is made: the submitter's
    /// quota is used up.
    pub known_only: bool,
}

impl NewJob {
    /// A job of this kind, with JSON as its parameters.
    #[must_use]
    pub fn new(kind: &str, params: impl Into<Bytes>) -> Self {
        Self {
            tenant: String::new(),
            kind: kind.to_owned(),
            params: params.into(),
            key: None,
            scope: None,
            client: String::new(),
            retention: None,
            delay: Duration::ZERO,
            priority: 5,
            max_attempts: None,
            known_only: false,
        }
    }

    /// Whether everything is within its bounds.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(
            &self.kind,
            false,
            "a kind has 1 to 120 printable ASCII characters",
        )?;
        check_name(
            &self.client,
            true,
            "a client has at most 120 printable ASCII characters",
        )?;
        check_name(
            &self.tenant,
            true,
            "a tenant has at most 120 printable ASCII characters",
        )?;
        if let Some(scope) = &self.scope {
            check_name(
                scope,
                false,
                "a scope has 1 to 120 printable ASCII characters",
            )?;
        }
        if self.params.len() > MAX_PARAMS_BYTES {
            return Err(Error::Invalid("the parameters have more than 1 MiB"));
        }
        if self.priority > MAX_PRIORITY {
            return Err(Error::Invalid("a priority is 0 to 9"));
        }
        if self.delay > MAX_DELAY {
            return Err(Error::Invalid("a job is delayed by at most a year"));
        }
        if self
            .max_attempts
            .is_some_and(|most| most == 0 || most > MAX_ATTEMPTS)
        {
            return Err(Error::Invalid("a job is started 1 to 1,000 times"));
        }
        Ok(())
    }

    /// Sets [`tenant`](Self::tenant).
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets [`key`](Self::key).
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Option<Key>>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets [`scope`](Self::scope).
    #[must_use]
    pub fn with_scope(mut self, scope: impl Into<Option<String>>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets [`client`](Self::client).
    #[must_use]
    pub fn with_client(mut self, client: impl Into<String>) -> Self {
        self.client = client.into();
        self
    }

    /// Sets [`retention`](Self::retention).
    #[must_use]
    pub fn with_retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.retention = retention.into();
        self
    }

    /// Sets [`delay`](Self::delay).
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets [`priority`](Self::priority).
    #[must_use]
    pub const fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub fn with_max_attempts(mut self, max_attempts: impl Into<Option<u16>>) -> Self {
        self.max_attempts = max_attempts.into();
        self
    }

    /// Sets [`known_only`](Self::known_only).
    #[must_use]
    pub const fn with_known_only(mut self, known_only: bool) -> Self {
        self.known_only = known_only;
        self
    }
}

/// The longest delay.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The most starts.
pub(crate) const MAX_ATTEMPTS: u16 = 1000;

pub(crate) fn check_name(text: &str, may_be_empty: bool, why: &'static str) -> Result<(), Error> {
    let fits = (may_be_empty || !text.is_empty()) && text.len() <= MAX_NAME_BYTES;
    if fits && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(());
    }
    Err(Error::Invalid(why))
}

/// Which job a submission stands for, and which submission was its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRef {
    /// The job.
    pub id: JobId,
    /// The first submission.
    pub request_id: RequestId,
}

impl JobRef {
    /// The job `id`, as submitted by `request_id`.
    #[must_use]
    pub const fn new(id: JobId, request_id: RequestId) -> Self {
        Self { id, request_id }
    }
}

/// The outcome of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The job is new, and was enqueued.
    Accepted(JobRef),
    /// The job exists, and waits or runs. Nothing was enqueued.
    InProgress(JobRef),
    /// The job exists, and is done.
    Completed(JobRef, JobAnswer),
    /// The job exists, and failed for good.
    Failed(JobRef, String),
}

impl SubmitOutcome {
    /// Which job.
    #[must_use]
    pub const fn job(&self) -> JobRef {
        match self {
            Self::Accepted(job)
            | Self::InProgress(job)
            | Self::Completed(job, _)
            | Self::Failed(job, _) => *job,
        }
    }

    /// Whether it was submitted before.
    #[must_use]
    pub const fn is_duplicate(&self) -> bool {
        !matches!(self, Self::Accepted(_))
    }

    /// The word for it.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Accepted(_) => "accepted",
            Self::InProgress(_) => "in_progress",
            Self::Completed(..) => "completed",
            Self::Failed(..) => "failed",
        }
    }
}

/// The answer of a worker.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobAnswer {
    /// JSON, byte for byte.
    Kept(Bytes),
    /// The answer was larger than the limit, and was not kept.
    Omitted {
        /// How long it was.
        bytes: u64,
    },
}

impl fmt::Debug for JobAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(body) => write!(f, "{} bytes", body.len()),
            Self::Omitted { bytes } => write!(f, "{bytes} bytes not kept"),
        }
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum JobState {
    /// It waits for a worker, or for its time.
    Queued = 1,
    /// A worker has it.
    Running = 2,
    /// It is done.
    Done = 3,
    /// It failed for good: a dead letter.
    Dead = 4,
}

impl JobState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Queued, Self::Running, Self::Done, Self::Dead];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    /// The status that a submitter gets.
    #[must_use]
    pub const fn status(self) -> &'static str {
        match self {
            Self::Queued | Self::Running => "in_progress",
            Self::Done => "completed",
            Self::Dead => "failed",
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Dead)
    }
}

impl FromStr for JobState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or(Error::Invalid("a state is queued, running, done or dead"))
    }
}

/// A stored job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Job {
    /// The id of the job.
    pub id: JobId,
    /// Of its first submission.
    pub request_id: RequestId,
    /// The tenant.
    pub tenant: String,
    /// What is to be done.
    pub kind: String,
    /// Who submitted it.
    pub client: String,
    /// How its key begins. Empty without a key.
    pub hint: String,
    /// The state.
    pub state: JobState,
    /// 0 to 9.
    pub priority: u8,
    /// The number of attempts so far.
    pub attempt: u16,
    /// The most attempts.
    pub max_attempts: u16,
    /// The worker that has it, or had it last.
    pub worker: Option<String>,
    /// Queued: the earliest start. Running: the end of the lease. Ended: the time of the end. On
    /// the store's clock.
    pub due_at: Timestamp,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it was last started.
    pub started_at: Option<Timestamp>,
    /// How long its parameters are.
    pub params_bytes: u64,
    /// What the worker gave back, once it is done.
    pub answer: Option<JobAnswer>,
    /// Why it failed last.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        assert!(NewJob::new("charge", "{}").check().is_ok());
        let bad = |change: fn(&mut NewJob)| {
            let mut job = NewJob::new("charge", "{}");
            change(&mut job);
            assert!(job.check().is_err(), "{job:?}");
        };
        bad(|job| job.kind = String::new());
        bad(|job| job.kind = "a\nb".to_owned());
        bad(|job| job.client = "x".repeat(121));
        bad(|job| job.priority = 10);
        bad(|job| job.delay = Duration::from_secs(400 * 24 * 3600));
        bad(|job| job.max_attempts = Some(0));
        bad(|job| job.params = vec![b' '; MAX_PARAMS_BYTES + 1].into());
    }
}
