//! [`Jobs`]: a queue, as a submitter or a worker uses it.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{Clock, KeyRules};
use serde::Serialize;

use crate::ends::Ends;
use crate::error::Error;
use crate::job::{Job, JobId, NewJob, Submitted};
use crate::queue::Queue;
use crate::work::{LeaseAsk, Leased};

/// The first pause between two looks, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A queue of jobs. Cheap to clone.
#[derive(Clone)]
pub struct Jobs {
    queue: Arc<dyn Queue>,
    clock: Arc<dyn Clock>,
    key_rules: KeyRules,
    submitted: Arc<tokio::sync::Notify>,
    ends: Ends,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Jobs({})", self.queue.name())
    }
}

impl Jobs {
    /// On this queue.
    #[must_use]
    pub fn new(queue: Arc<dyn Queue>, clock: Arc<dyn Clock>, key_rules: KeyRules) -> Self {
        Self {
            queue,
            clock,
            key_rules,
            submitted: Arc::default(),
            ends: Ends::default(),
        }
    }

    /// The queue itself.
    #[must_use]
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// A job of this kind, with this as its parameters. `await` it.
    pub fn submit(&self, kind: &str, params: &(impl Serialize + ?Sized)) -> Submit {
        let params = serde_json::to_vec(params).map_err(|error| Error::Params(error.to_string()));
        let (params, broken) = match params {
            Ok(params) => (params, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Submit {
            jobs: self.clone(),
            job: NewJob::new(kind, params),
            broken,
        }
    }

    /// Submits many at once, by the same way.
    pub async fn submit_all(&self, jobs: Vec<NewJob>) -> Vec<Result<Submitted, Error>> {
        let answers = self.queue.enqueue(jobs).await;
        let is_new =
            |answer: &Result<Submitted, Error>| matches!(answer, Ok(Submitted::Accepted(_)));
        if answers.iter().any(is_new) {
            self.submitted.notify_waiters();
        }
        answers
    }

    /// Takes jobs; waits for some at most so long. Learns at once of what is submitted in this process, and of
    /// the rest by looking, after growing pauses.
    ///
    /// # Errors
    /// [`Error::Invalid`], and where the store gives no answer.
    pub async fn lease(&self, ask: &LeaseAsk, wait: Duration) -> Result<Vec<Leased>, Error> {
        let began = self.clock.now();
        let mut pause = PAUSES.0;
        loop {
            let told = self.submitted.notified();
            let leased = self.queue.lease(ask).await?;
            let left = wait.saturating_sub(self.clock.now().since(began));
            if !leased.is_empty() || left.is_zero() {
                return Ok(leased);
            }
            self.pause(told, pause.min(left)).await;
            pause = pause.mul_f64(1.5).min(PAUSES.1);
        }
    }

    /// The job once it has ended, or as it is after `wait`.
    ///
    /// # Errors
    /// Where the store gives no answer.
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

    /// Tells those who wait for this job in this process that it has ended.
    pub fn tell_ended(&self, id: JobId) {
        self.ends.tell(id);
    }

    async fn pause(&self, told: impl Future<Output = ()>, at_most: Duration) {
        let told = std::pin::pin!(told);
        futures_util::future::select(told, self.clock.sleep(at_most)).await;
    }
}

/// A job on its way. Nothing happens until it is awaited.
#[must_use = "a job is not submitted until this is awaited"]
pub struct Submit {
    jobs: Jobs,
    job: NewJob,
    broken: Option<Error>,
}

impl Submit {
    /// The same for every retry of this submission.
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

    /// Where the key lives, if not with the other keys of this kind: `queue` is for all kinds.
    pub fn scope(mut self, scope: &str) -> Self {
        self.job.scope = Some(scope.to_owned());
        self
    }

    /// Whose job it is.
    pub fn tenant(mut self, tenant: &str) -> Self {
        tenant.clone_into(&mut self.job.tenant);
        self
    }

    /// Who submits it.
    pub fn client(mut self, client: &str) -> Self {
        client.clone_into(&mut self.job.client);
        self
    }

    /// Not to be started before so long.
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.job.delay = delay;
        self
    }

    /// 0 to 9, higher first; 5 unless given.
    pub const fn priority(mut self, priority: u8) -> Self {
        self.job.priority = priority;
        self
    }

    /// How often it may be started.
    pub const fn max_attempts(mut self, most: u16) -> Self {
        self.job.max_attempts = Some(most);
        self
    }
}

impl IntoFuture for Submit {
    type Output = Result<Submitted, Error>;
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
