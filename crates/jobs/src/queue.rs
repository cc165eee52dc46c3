//! [`Queue`]: the trait that every job queue implements, with its contract.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use semel_core::BoxFuture;

use crate::error::Error;
use crate::job::{Job, JobId, JobState, NewJob, SubmitOutcome};
use crate::work::{JobLease, LeaseOptions, LeaseToken};

/// The future of a queue call.
pub(crate) type QueueFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A queue of jobs.
///
/// # Contract
///
/// - A key and its parameters have one job, however often it is submitted, until the job has ended
///   and the retention is over (in PostgreSQL it begins with the job's end, in a bucket with its
///   submission). The job keeps its id and its first request id.
/// - A leased job is given to no other worker until the lease has ended on the store's clock.
/// - A call under a lease that another worker has taken over changes nothing, and fails.
/// - Every call may be sent again after a lost reply.
/// - No accepted job is lost: it is done, a dead letter, or will be given to a worker.
///
/// A job may run more than once: a worker may crash after the work and before its completion.
/// Downstream systems use the job id as an idempotency key.
pub trait Queue: Send + Sync + 'static {
    /// Submits jobs. Returns one result for each, in the same order.
    fn enqueue(&self, jobs: Vec<NewJob>) -> BoxFuture<'_, Vec<Result<SubmitOutcome, Error>>>;

    /// Leases jobs: higher priority first, and older first within a kind. Empty if there are none,
    /// or a limit on running jobs is reached.
    fn lease<'a>(&'a self, ask: &'a LeaseOptions) -> QueueFuture<'a, Vec<JobLease>>;

    /// Extends the lease of a job to `span` from now.
    fn heartbeat(&self, id: JobId, lease: LeaseToken, span: Duration) -> QueueFuture<'_, ()>;

    /// Completes a job. Every later submission of its key gets this answer, JSON, byte for byte.
    fn complete(&self, id: JobId, lease: LeaseToken, answer: Bytes) -> QueueFuture<'_, ()>;

    /// Fails a job: it runs again after a pause, or becomes a dead letter.
    fn fail<'a>(
        &'a self,
        id: JobId,
        lease: LeaseToken,
        failed: &'a JobFailure,
    ) -> QueueFuture<'a, JobState>;

    /// Reads a job.
    fn look(&self, id: JobId) -> QueueFuture<'_, Option<Job>>;

    /// Lists jobs, the newest first.
    fn list<'a>(&'a self, query: &'a JobQuery) -> QueueFuture<'a, JobPage>;

    /// Queues a dead letter again: the same job with the same id, and no attempts.
    fn retry(&self, id: JobId) -> QueueFuture<'_, ()>;

    /// Requeues jobs of crashed workers, makes dead letters of those without attempts left, and
    /// removes jobs whose retention is over. Every process may do it at any time.
    fn reap(&self) -> QueueFuture<'_, ReapReport>;

    /// Counts jobs by state.
    fn counts(&self) -> QueueFuture<'_, JobCounts>;

    /// The longest pause between two looks of a worker that waits for jobs of other processes.
    fn longest_pause(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Its name, as in its store's URL.
    fn name(&self) -> &'static str;
}

/// Why a job failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobFailure {
    /// The message; cut off after 2 KiB.
    pub error: String,
    /// Whether to run it again, if attempts are left.
    pub retryable: bool,
    /// The pause before the next attempt; `None` backs off longer after every attempt.
    pub delay: Option<Duration>,
}

impl JobFailure {
    /// A failure after which the job runs again.
    #[must_use]
    pub fn again(error: &str) -> Self {
        Self {
            error: error.to_owned(),
            retryable: true,
            delay: None,
        }
    }

    /// A final failure.
    #[must_use]
    pub fn for_good(error: &str) -> Self {
        Self {
            retryable: false,
            ..Self::again(error)
        }
    }

    /// Sets [`delay`](Self::delay).
    #[must_use]
    pub fn with_delay(mut self, delay: impl Into<Option<Duration>>) -> Self {
        self.delay = delay.into();
        self
    }
}

/// The filter and position of a listing of jobs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JobQuery {
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only jobs older than this one, which ended the last page.
    pub after: Option<JobId>,
    /// The most jobs per page; 0 means 1,000, which is also the maximum.
    pub limit: usize,
}

impl JobQuery {
    pub(crate) fn page_size(&self) -> usize {
        if self.limit == 0 {
            1000
        } else {
            self.limit.min(1000)
        }
    }

    /// Sets [`tenant`](Self::tenant).
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<Option<String>>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets [`kind`](Self::kind).
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<Option<String>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets [`state`](Self::state).
    #[must_use]
    pub fn with_state(mut self, state: impl Into<Option<JobState>>) -> Self {
        self.state = state.into();
        self
    }

    /// Sets [`after`](Self::after).
    #[must_use]
    pub fn with_after(mut self, after: impl Into<Option<JobId>>) -> Self {
        self.after = after.into();
        self
    }

    /// Sets [`limit`](Self::limit).
    #[must_use]
    pub const fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where to continue; `None` at the end.
    pub next: Option<JobId>,
}

/// The result of one pass of the reaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReapReport {
    /// Jobs queued again.
    pub requeued: u64,
    /// Jobs made dead letters.
    pub buried: u64,
    /// Ended jobs removed.
    pub swept: u64,
    /// Whether there was no running job, so that no lease can lapse soon. Only a queue that is paid
    /// for each look says so.
    pub idle: bool,
}

/// The number of jobs by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobCounts {
    /// Waiting.
    pub queued: u64,
    /// With a worker.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Files in a bucket that can't be read as a job. No worker gets them until an operator has
    /// fixed them.
    pub damaged: u64,
    /// The path of one of those files, to begin with.
    pub damaged_file: Option<String>,
}

/// Limits on the number of jobs (back-pressure).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueLimits {
    /// The most waiting jobs of one kind; more are refused. `None` means no limit.
    pub queued_per_kind: Option<u64>,
    /// The most unfinished jobs of one client; more are refused. `None` means no limit.
    pub unfinished_per_client: Option<u64>,
    /// The most jobs of one kind that run at once; others wait. `None` means no limit.
    pub running_per_kind: Option<u64>,
    /// The most running jobs of a kind, by its name.
    pub running: HashMap<String, u64>,
}

impl QueueLimits {
    pub(crate) fn running_of(&self, kind: &str) -> Option<u64> {
        self.running.get(kind).copied().or(self.running_per_kind)
    }

    pub(crate) const fn bounds_queued(&self) -> bool {
        self.queued_per_kind.is_some() || self.unfinished_per_client.is_some()
    }

    /// Sets [`queued_per_kind`](Self::queued_per_kind).
    #[must_use]
    pub fn with_queued_per_kind(mut self, queued_per_kind: impl Into<Option<u64>>) -> Self {
        self.queued_per_kind = queued_per_kind.into();
        self
    }

    /// Sets [`unfinished_per_client`](Self::unfinished_per_client).
    #[must_use]
    pub fn with_unfinished_per_client(
        mut self,
        unfinished_per_client: impl Into<Option<u64>>,
    ) -> Self {
        self.unfinished_per_client = unfinished_per_client.into();
        self
    }

    /// Sets [`running_per_kind`](Self::running_per_kind).
    #[must_use]
    pub fn with_running_per_kind(mut self, running_per_kind: impl Into<Option<u64>>) -> Self {
        self.running_per_kind = running_per_kind.into();
        self
    }

    /// Sets [`running`](Self::running).
    #[must_use]
    pub fn with_running(mut self, running: HashMap<String, u64>) -> Self {
        self.running = running;
        self
    }
}

/// Settings of a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueConfig {
    /// How long an answer is kept after the job has ended, and the job itself. `None` is the
    /// default of the queue: 24 h in PostgreSQL, 30 days in a bucket.
    pub retention: Option<Duration>,
    /// The longest that a submitter may ask for. 30 days.
    pub max_retention: Duration,
    /// The largest answer kept. 16 KiB.
    pub max_answer_bytes: usize,
    /// The most attempts of a job, unless it sets its own. 5.
    pub max_attempts: u16,
    /// The pause after a first failure; doubled after each further one, up to an hour. 1 s.
    pub backoff: Duration,
    /// Limits on the number of jobs.
    pub limits: QueueLimits,
}

impl Default for QueueConfig {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            retention: None,
            max_retention: 30 * DAY,
            max_answer_bytes: 16 * 1024,
            max_attempts: 5,
            backoff: Duration::from_secs(1),
            limits: QueueLimits::default(),
        }
    }
}

impl QueueConfig {
    /// The largest answer that can be kept in a record's row.
    pub const MAX_ANSWER_BYTES: usize = 31 * 1024;

    /// The longest pause between two attempts.
    const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

    /// How long to wait after the `attempt`th failed.
    pub(crate) fn pause_after(&self, attempt: u16) -> Duration {
        let doubled = u32::from(attempt.saturating_sub(1)).min(20);
        self.backoff
            .saturating_mul(1 << doubled)
            .min(Self::LONGEST_PAUSE)
    }

    /// The settings of a queue with this default retention.
    pub(crate) fn with_default_retention(mut self, default: Duration) -> Self {
        let default = default.min(self.max_retention);
        self.retention.get_or_insert(default);
        self
    }

    /// How long to keep the answer of a job that asks for `asked`.
    pub(crate) fn retention_of(&self, asked: Option<Duration>) -> Result<Duration, Error> {
        match asked {
            None => Ok(self.retention.unwrap_or(self.max_retention)),
            Some(asked) if asked.is_zero() || asked > self.max_retention => Err(Error::Invalid(
                "an answer is kept for longer than 0 s, and no longer than jobs.max_retention",
            )),
            Some(asked) => Ok(asked),
        }
    }

    /// Sets [`retention`](Self::retention).
    #[must_use]
    pub fn with_retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.retention = retention.into();
        self
    }

    /// Sets [`max_retention`](Self::max_retention).
    #[must_use]
    pub const fn with_max_retention(mut self, max_retention: Duration) -> Self {
        self.max_retention = max_retention;
        self
    }

    /// Sets [`max_answer_bytes`](Self::max_answer_bytes).
    #[must_use]
    pub const fn with_max_answer_bytes(mut self, max_answer_bytes: usize) -> Self {
        self.max_answer_bytes = max_answer_bytes;
        self
    }

    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub const fn with_max_attempts(mut self, max_attempts: u16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets [`backoff`](Self::backoff).
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Duration) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets [`limits`](Self::limits).
    #[must_use]
    pub fn with_limits(mut self, limits: QueueLimits) -> Self {
        self.limits = limits;
        self
    }
}
