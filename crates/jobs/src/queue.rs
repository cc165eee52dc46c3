//! [`Queue`]: what every queue does, in words that it can be held to.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use semel_core::BoxFuture;

use crate::error::Error;
use crate::job::{Job, JobId, JobState, NewJob, Submitted};
use crate::work::{LeaseAsk, LeaseToken, Leased};

/// What a call gives.
pub(crate) type Called<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A queue of jobs.
///
/// # Contract
///
/// - For a key and its parameters there is one job, whoever submits it how often, until its retention is over after its
///   end. The job keeps its id and its first request id.
/// - A job that is leased is given to nobody else until the lease has ended on the store's clock.
/// - What a worker says under a lease that another has taken over changes nothing, and is told so.
/// - Every call may be sent again after a lost reply.
/// - No job that was accepted is lost: it is done, or dead, or will be given to a worker.
///
/// A job may run more than once: a worker that was given it may vanish after the work and before it said so. The job id is
/// what makes that harmless further down the road.
pub trait Queue: Send + Sync + 'static {
    /// Submits; one result for each, in the same order. One or many, the way is the same.
    fn enqueue(&self, jobs: Vec<NewJob>) -> BoxFuture<'_, Vec<Result<Submitted, Error>>>;

    /// Takes jobs, higher priority first, older first within a kind. Empty where there are none, or as many run as may.
    fn lease<'a>(&'a self, ask: &'a LeaseAsk) -> Called<'a, Vec<Leased>>;

    /// Keeps a job for `span` from now on.
    fn heartbeat(&self, id: JobId, lease: LeaseToken, span: Duration) -> Called<'_, ()>;

    /// It is done; every later submission of its key gets this answer, JSON, byte for byte.
    fn complete(&self, id: JobId, lease: LeaseToken, answer: Bytes) -> Called<'_, ()>;

    /// It failed: it is run again after a while, or, if it can't be, is a dead letter.
    fn fail<'a>(&'a self, id: JobId, lease: LeaseToken, failed: &'a Failed)
    -> Called<'a, JobState>;

    /// The job as it is now.
    fn look(&self, id: JobId) -> Called<'_, Option<Job>>;

    /// Jobs, the newest first.
    fn list<'a>(&'a self, query: &'a JobQuery) -> Called<'a, Page>;

    /// A dead letter, as new: the same job, the same id, no attempts.
    fn retry(&self, id: JobId) -> Called<'_, ()>;

    /// Gives jobs back whose workers have vanished, buries those that were started often enough, and forgets
    /// what ended long ago. Every process may do it at any time.
    fn reap(&self) -> Called<'_, Reaped>;

    /// How many jobs there are in which state.
    fn counts(&self) -> Called<'_, Counts>;

    /// Its name, as in its store's URL.
    fn name(&self) -> &'static str;
}

/// Why a job failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What to tell; cut off past 2 KiB.
    pub error: String,
    /// Whether to run it again, if it may be started once more.
    pub retryable: bool,
    /// When; `None` waits longer after every attempt.
    pub delay: Option<Duration>,
}

impl Failed {
    /// To be run again.
    #[must_use]
    pub fn again(error: &str) -> Self {
        Self {
            error: error.to_owned(),
            retryable: true,
            delay: None,
        }
    }

    /// For good.
    #[must_use]
    pub fn for_good(error: &str) -> Self {
        Self {
            retryable: false,
            ..Self::again(error)
        }
    }
}

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct JobQuery {
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only those older than this one: where the last page ended.
    pub after: Option<JobId>,
    /// At most so many; 0 takes 1,000, which is also the most.
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
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where to go on; `None` at the end.
    pub next: Option<JobId>,
}

/// What a reaper did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Given back to be run again.
    pub requeued: u64,
    /// Made dead letters.
    pub buried: u64,
    /// Ended long ago, and forgotten.
    pub swept: u64,
}

/// How many jobs there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting.
    pub queued: u64,
    /// With a worker.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Files in a bucket that can't be read as the job of their place. Nobody gets them until somebody has mended them.
    pub damaged: u64,
    /// The path of one of those files: where to begin.
    pub damaged_file: Option<String>,
}

/// How many jobs there may be.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Waiting, of one kind; past it a new one is refused. `None`: any number.
    pub queued_per_kind: Option<u64>,
    /// Not ended, of one client; past it a new one is refused. `None`: any number.
    pub unfinished_per_client: Option<u64>,
    /// Running at once, of one kind; past it they wait. `None`: any number.
    pub running_per_kind: Option<u64>,
    /// The same for kinds by name.
    pub running: HashMap<String, u64>,
}

impl Limits {
    pub(crate) fn running_of(&self, kind: &str) -> Option<u64> {
        self.running.get(kind).copied().or(self.running_per_kind)
    }

    pub(crate) const fn bounds_queued(&self) -> bool {
        self.queued_per_kind.is_some() || self.unfinished_per_client.is_some()
    }
}

/// Settings of a queue.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// How long an answer is kept after the job has ended, and the job itself. 24 h; 30 days in a bucket.
    pub retention: Duration,
    /// The longest that a submitter may ask for. 30 days.
    pub max_retention: Duration,
    /// The largest answer kept. 16 KiB.
    pub max_answer_bytes: usize,
    /// How often a job may be started, unless it says otherwise. 5.
    pub max_attempts: u16,
    /// How long to wait after a first failure; twice as long after each further one, up to an hour. 1 s.
    pub backoff: Duration,
    /// How many jobs there may be.
    pub limits: Limits,
}

impl Default for QueueConfig {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            retention: DAY,
            max_retention: 30 * DAY,
            max_answer_bytes: 16 * 1024,
            max_attempts: 5,
            backoff: Duration::from_secs(1),
            limits: Limits::default(),
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

    /// How long to keep the answer of a job that asks for `asked`.
    pub(crate) fn retention_of(&self, asked: Option<Duration>) -> Result<Duration, Error> {
        match asked {
            None => Ok(self.retention),
            Some(asked) if asked.is_zero() || asked > self.max_retention => Err(Error::Invalid(
                "an answer is kept for longer than 0 s, and no longer than jobs.max_retention",
            )),
            Some(asked) => Ok(asked),
        }
    }
}
