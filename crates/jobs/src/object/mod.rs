//! Jobs in a bucket: no server but the object store.
//!
//! ```text
//! tasks/{shard}/{task_id}.json
//! idempotency/{scope}/{key_hash}.json      key_hash = sha256(scope + ":" + key)
//! ```
//!
//! Those of a tenant lie under `tenants/{tenant}/`, and all of a named environment under
//! `environments/{environment}/`.
//!
//! A submission creates the record of its key, which names the task before there is one
//! (`creating`), then the task, under that name, then marks the record as `ready`. Each is a
//! conditional write. A submission that finds a record that is still `creating` creates the task
//! that it names. So the next submission completes the work of a crashed one, and there is never a
//! second task. That needs no lease, and nobody waits.
//!
//! Workers lease a task by replacing exactly the version that was read. That scans the tasks, so
//! this queue is for thousands of unfinished tasks rather than millions. A job runs at least once,
//! as in every queue.

mod admin;
mod file;
mod lease;
mod report;
mod submit;
mod work;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use object_store::path::Path;
use parking_lot::Mutex;
use semel_core::engine::Engine;
use semel_core::{BoxFuture, Certainty, Env, StoreError, StoreErrorKind, Timestamp};
use semel_stores::object::ObjectStore;
use std::collections::HashMap;

use crate::error::Error;
use crate::job::{Job, JobId, JobState, NewJob, SubmitOutcome};
use crate::queue::{
    JobCounts, JobFailure, JobPage, JobQuery, Queue, QueueConfig, QueueFuture, ReapReport,
};
use crate::work::{JobLease, LeaseOptions, LeaseToken};
use report::Reporter;

/// How long a key is kept, unless a submitter says otherwise: 30 days.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The folder of the records of keys.
const KEYS: &str = "idempotency";

/// The most tasks that a process remembers to be done, so as not to read them again.
const REMEMBERED: usize = 100_000;

/// The longest pause between two looks of a worker that waits: each look is paid for.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Submissions at a time.
const AT_ONCE: usize = 32;

/// A queue in a bucket. Cheap to clone.
#[derive(Clone)]
pub struct ObjectQueue {
    inner: Arc<Inner>,
}

struct Inner {
    store: ObjectStore,
    env: Env,
    /// Where everything of this environment lies.
    folder: Path,
    config: QueueConfig,
    reporter: Option<Reporter>,
    /// Tasks that are done, and until when they are kept.
    done: Mutex<HashMap<JobId, Timestamp>>,
}

/// The error of a write that lost every compare-and-swap.
fn overtaken() -> Error {
    let said = "the bucket did not take the write, or did not say so; ask again";
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said).into()
}

impl ObjectQueue {
    /// A queue in the bucket of `store`, in the folder that its URL names. Jobs of two environments
    /// never meet; `environment` is empty if there is only one. Keys are kept for
    /// `config.retention` from the submission on, [`DEFAULT_TTL`] unless set.
    #[must_use]
    pub fn new(store: &ObjectStore, env: &Env, environment: &str, config: QueueConfig) -> Self {
        Self::build(store, env, environment, config, None)
    }

    /// The same, with events of submissions and ends for the observer of `engine`, so that they are
    /// in its metrics, log and audit trail.
    #[must_use]
    pub fn observed(
        store: &ObjectStore,
        engine: &Engine,
        environment: &str,
        config: QueueConfig,
    ) -> Self {
        let reporter = Reporter::new(engine, environment);
        Self::build(store, engine.env(), environment, config, Some(reporter))
    }

    fn build(
        store: &ObjectStore,
        env: &Env,
        environment: &str,
        config: QueueConfig,
        reporter: Option<Reporter>,
    ) -> Self {
        let folder = of_environment(store.folder(), environment);
        let inner = Inner {
            store: store.clone(),
            env: env.clone(),
            folder,
            config: config.with_default_retention(DEFAULT_TTL),
            reporter,
            done: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The folder of a tenant's keys, below the folder that the bucket's URL names.
    #[must_use]
    pub fn key_folder(environment: &str, tenant: &str) -> Path {
        of_tenant(of_environment(Path::default(), environment), tenant).join(KEYS)
    }

    /// Where the record of a key lies.
    #[must_use]
    pub fn record_path(&self, tenant: &str, scope: &str, key: &str) -> Path {
        self.inner
            .record_path(tenant, scope, &file::key_hash(scope, key))
    }

    /// Where a task lies.
    #[must_use]
    pub fn task_path(&self, tenant: &str, id: JobId) -> Path {
        self.inner.task_path(tenant, id)
    }
}

fn of_environment(folder: Path, environment: &str) -> Path {
    if environment.is_empty() {
        return folder;
    }
    folder.join("environments").join(environment)
}

fn of_tenant(folder: Path, tenant: &str) -> Path {
    if tenant.is_empty() {
        return folder;
    }
    folder.join("tenants").join(tenant)
}

/// The files as a queue reads them, and as it would write them again: for `fuzz/`.
#[doc(hidden)]
pub mod files {
    use super::{Bytes, Error, Job, JobId, file};

    /// A task, at the place of `id`.
    ///
    /// # Errors
    /// If it is no task, or another's.
    pub fn task(id: JobId, bytes: &[u8]) -> Result<(Job, Bytes), Error> {
        let task = file::TaskFile::read(id, bytes)?;
        Ok((task.job("")?, file::write(&task)?))
    }

    /// The record of a key, at its place.
    ///
    /// # Errors
    /// If it is no record, or another's.
    pub fn record(scope: &str, key: &str, bytes: &[u8]) -> Result<(JobId, Bytes), Error> {
        let record = file::RecordFile::read(&file::key_hash(scope, key), bytes)?;
        Ok((record.id()?, file::write(&record)?))
    }
}

impl Inner {
    /// Those of two tenants never meet. Where there is one, its name is not part of any path.
    fn base(&self, tenant: &str) -> Path {
        of_tenant(self.folder.clone(), tenant)
    }

    fn record_path(&self, tenant: &str, scope: &str, key_hash: &str) -> Path {
        let folder = self.base(tenant).join(KEYS).join(scope);
        folder.join(format!("{key_hash}.json"))
    }

    fn task_path(&self, tenant: &str, id: JobId) -> Path {
        let folder = self.base(tenant).join("tasks").join(file::shard(id));
        folder.join(format!("{}.json", crate::id::as_uuid(id.as_u128())))
    }

    /// A task that is done never lives again: nobody need read it until it may go.
    fn remember_done(&self, id: JobId, until: Timestamp) {
        let mut done = self.done.lock();
        if done.len() >= REMEMBERED {
            let mut keep = false;
            done.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        done.insert(id, until);
    }

    /// Whether a task is known to be done, and to be kept still.
    fn is_done(&self, id: JobId) -> bool {
        let until = self.done.lock().get(&id).copied();
        until.is_some_and(|until| self.store.server_time() < until)
    }
}

impl Queue for ObjectQueue {
    fn enqueue(&self, jobs: Vec<NewJob>) -> BoxFuture<'_, Vec<Result<SubmitOutcome, Error>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(jobs.len());
            let mut jobs = jobs.into_iter().peekable();
            while jobs.peek().is_some() {
                let some = jobs.by_ref().take(AT_ONCE);
                let each = some.map(|job| async move { self.inner.submit(&job).await });
                answers.extend(join_all(each).await);
            }
            answers
        })
    }

    fn lease<'a>(&'a self, ask: &'a LeaseOptions) -> QueueFuture<'a, Vec<JobLease>> {
        Box::pin(self.inner.lease(ask))
    }

    fn heartbeat(&self, id: JobId, lease: LeaseToken, span: Duration) -> QueueFuture<'_, ()> {
        Box::pin(self.inner.heartbeat(id, lease, span))
    }

    fn complete(&self, id: JobId, lease: LeaseToken, answer: Bytes) -> QueueFuture<'_, ()> {
        Box::pin(self.inner.complete(id, lease, answer))
    }

    fn fail<'a>(
        &'a self,
        id: JobId,
        lease: LeaseToken,
        failed: &'a JobFailure,
    ) -> QueueFuture<'a, JobState> {
        Box::pin(self.inner.fail(id, lease, failed))
    }

    fn look(&self, id: JobId) -> QueueFuture<'_, Option<Job>> {
        Box::pin(self.inner.look(id))
    }

    fn list<'a>(&'a self, query: &'a JobQuery) -> QueueFuture<'a, JobPage> {
        Box::pin(self.inner.list(query))
    }

    fn retry(&self, id: JobId) -> QueueFuture<'_, ()> {
        Box::pin(self.inner.retry(id))
    }

    fn reap(&self) -> QueueFuture<'_, ReapReport> {
        Box::pin(self.inner.reap())
    }

    fn counts(&self) -> QueueFuture<'_, JobCounts> {
        Box::pin(self.inner.counts())
    }

    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }

    fn name(&self) -> &'static str {
        "object"
    }
}
