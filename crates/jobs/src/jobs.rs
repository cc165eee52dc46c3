//! [`Jobs`]: the API of a queue for submitters and workers.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{Clock, KeyRules};
use serde::Serialize;

use crate::end_watch::EndWatchers;
use crate::error::Error;
use crate::job::{Job, JobId, NewJob, SubmitOutcome};
use crate::queue::Queue;
use crate::work::{JobLease, LeaseOptions};

/// The first pause between two looks, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A queue of jobs. Cheap to clone.
#[derive(Clone)]
pub struct Jobs {
    queue: Arc<dyn Queue>,
    clock: Arc<dyn Clock>,
    key_rules: KeyRules,
    submitted: Arc<tokio::sync::Notify>,
    ends: EndWatchers,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Jobs({})", self.queue.name())
    }
}

impl Jobs {
    /// The API of this queue.
    #[must_use]
    pub fn new(queue: Arc<dyn Queue>, clock: Arc<dyn Clock>, key_rules: KeyRules) -> Self {
        Self {
            queue,
            clock,
            key_rules,
            submitted: Arc::default(),
            ends: EndWatchers::default(),
        }
    }

    /// The queue itself.
    #[must_use]
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// Submits a job of this kind with these parameters when awaited.
    pub fn submit(&self, kind: &str, params: &(impl Serialize + ?Sized)) -> SubmitRequest {
        let params = serde_json::to_vec(params).map_err(|error| Error::Params(error.to_string()));
        let (params, broken) = match params {
            Ok(params) => (params, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        SubmitRequest {
            jobs: self.clone(),
            job: NewJob::new(kind, params),
            broken,
        }
    }

    /// Submits many jobs at once.
    pub async fn submit_all(&self, jobs: Vec<NewJob>) -> Vec<Result<SubmitOutcome, Error>> {
        let answers = self.queue.enqueue(jobs).await;
        let is_new = |answer: &Result<SubmitOutcome, Error>| {
            matches!(answer, Ok(SubmitOutcome::Accepted(_)))
        };
        if answers.iter().any(is_new) {
            self.submitted.notify_waiters();
        }
        answers
    }

    /// Leases jobs, and waits for some for at most `wait`. Notices submissions of this process at
    /// once, and others by polling with pauses that grow by half from 50 ms to
    /// [`Queue::longest_pause`].
    ///
    /// # Errors
    /// [`Error::Invalid`], or if the store gives no answer.
    pub async fn lease(&self, ask: &LeaseOptions, wait: Duration) -> Result<Vec<JobLease>, Error> {
        let began = self.clock.now();
        let mut pause = PAUSES.0;
        let longest = self.queue.longest_pause();
        loop {
            let told = self.submitted.notified();
            let leased = self.queue.lease(ask).await?;
            let left = wait.saturating_sub(self.clock.now().since(began));
            if !leased.is_empty() || left.is_zero() {
                return Ok(leased);
            }
            self.pause(told, pause.min(left)).await;
            pause = pause.mul_f64(1.5).min(longest);
        }
    }

    /// Waits until the job has ended, or for at most `wait`, and returns it.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn wait(&self, id: JobId, wait: Duration) -> Result<Option<Job>, Error> {
        let began = self.clock.now();
        let mut pause = PAUSES.0;
        let watch = self.ends.watch(id);
        loop {
            let told = watch.ended.notified();
            let found = self.queue.look(id).await?;
            let left = wait.saturating_sub(self.clock.now().since(began));
            let has_ended = found.as_ref().is_none_or(|job| job.state.has_ended());
            if has_ended || left.is_zero() {
                return Ok(found);
            }
            self.pause(told, pause.min(left)).await;
            pause = pause.mul_f64(1.5).min(PAUSES.1);
        }
    }

    /// Wakes those who wait for the end of this job in this process.
    pub fn notify_ended(&self, id: JobId) {
        self.ends.notify(id);
    }

    async fn pause(&self, told: impl Future<Output = ()>, at_most: Duration) {
        let told = std::pin::pin!(told);
        futures_util::future::select(told, self.clock.sleep(at_most)).await;
    }
}

/// A submission. Nothing happens until it is awaited.
#[must_use = "a job is not submitted until this is awaited"]
pub struct SubmitRequest {
    jobs: Jobs,
    job: NewJob,
    broken: Option<Error>,
}

impl SubmitRequest {
    /// The idempotency key: the same for every retry of this submission.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        match self.jobs.key_rules.check(key) {
            Ok(key) => self.job.key = Some(key),
            Err(error) => self.broken = Some(Error::Params(error.to_string())),
        }
        self
    }

    /// How long the answer is kept after the job's end, and with it the key.
    pub fn idempotency_ttl(mut self, ttl: Duration) -> Self {
        self.job.retention = Some(ttl);
        self
    }

    /// The scope of the key, if not that of its kind: `queue` is shared by all kinds.
    pub fn scope(mut self, scope: &str) -> Self {
        self.job.scope = Some(scope.to_owned());
        self
    }

    /// The tenant of the job.
    pub fn tenant(mut self, tenant: &str) -> Self {
        tenant.clone_into(&mut self.job.tenant);
        self
    }

    /// The client that submits it.
    pub fn client(mut self, client: &str) -> Self {
        client.clone_into(&mut self.job.client);
        self
    }

    /// The delay before the job may start.
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.job.delay = delay;
        self
    }

    /// 0 to 9, higher first; 5 unless given.
    pub const fn priority(mut self, priority: u8) -> Self {
        self.job.priority = priority;
        self
    }

    /// The most attempts.
    pub const fn max_attempts(mut self, most: u16) -> Self {
        self.job.max_attempts = Some(most);
        self
    }
}

impl IntoFuture for SubmitRequest {
    type Output = Result<SubmitOutcome, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            if let Some(broken) = self.broken {
                return Err(broken);
            }
            let mut answers = self.jobs.submit_all(vec![self.job]).await;
            answers.pop().unwrap_or(Err(Error::NotFound))
        })
    }
}
