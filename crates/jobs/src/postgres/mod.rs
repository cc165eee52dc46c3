//! Jobs in PostgreSQL, in a table beside the records: a job and the record of its key are written
//! by one statement.
//!
//! A submission is a claim whose effect runs elsewhere. The claim also writes the job; the worker's
//! completion settles the record and ends the job. So the record has the state of the job: running,
//! completed, failed.
//!
//! | file | is |
//! |---|---|
//! | `submit` | one submission, through a store for one claim |
//! | `batch` | group commit: all waiting jobs in one statement |
//! | `depth` | queue depth, for the limits |
//! | `lease` | leases, heartbeats, failures |
//! | `end`, `end_store` | the end of a job, through a store for one settlement |
//! | `answer` | a job's answer in the record of its key |
//! | `reap` | jobs of crashed workers, and retention |
//! | `list` | reading, listing, counting, retrying dead letters |
//! | `row` | a job as a row, and back |

mod answer;
mod batch;
mod depth;
mod end;
mod end_store;
mod lease;
mod list;
mod reap;
mod row;
mod submit;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use semel_core::engine::Engine;
use semel_core::{BoxFuture, ClaimTerms, Namespace};
use semel_stores::postgres::{ClaimStatement, File, PostgresStore, SettlementStatement};
use sqlx::types::Uuid;

use crate::error::Error;
use crate::job::{Job, JobId, JobState, NewJob, SubmitOutcome};
use crate::queue::{
    JobCounts, JobFailure, JobPage, JobQuery, Queue, QueueConfig, QueueFuture, ReapReport,
};
use crate::work::{JobLease, LeaseOptions, LeaseToken};

use batch::Batches;
use depth::Depths;

/// The files that make the tables, for whoever applies them by hand; see
/// `semel_stores::postgres::MIGRATIONS`.
pub const MIGRATIONS: &[File] = &[(
    "0001_jobs",
    include_str!("../../migrations/postgres/0001_jobs.sql"),
)];

/// How many leases a process remembers, which saves their ends a look.
const REMEMBERED: usize = 16 * 1024;

/// How long an answer is kept after its job has ended, unless set.
const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// A queue in PostgreSQL. Cheap to clone.
#[derive(Clone)]
pub struct PostgresQueue {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    store: PostgresStore,
    environment: String,
    config: QueueConfig,
    batches: Batches,
    depths: Depths,
    with_end: SettlementStatement,
    with_note: ClaimStatement,
    with_retry: ClaimStatement,
    leased: quick_cache::sync::Cache<(JobId, LeaseToken), Arc<row::LeasedRow>>,
}

impl PostgresQueue {
    /// A queue beside the records in `store`, on which `engine` is; makes its tables if they are
    /// missing.
    ///
    /// # Errors
    /// If the tables can't be made, or a setting is out of bounds.
    pub async fn open(
        engine: &Engine,
        store: &PostgresStore,
        environment: &str,
        config: QueueConfig,
    ) -> Result<Self, Error> {
        if config.max_answer_bytes > QueueConfig::MAX_ANSWER_BYTES {
            return Err(Error::Invalid("jobs.max_result_bytes is at most 31 KiB"));
        }
        let config = config.with_default_retention(DEFAULT_RETENTION);
        if config.retention > Some(config.max_retention)
            || config.max_retention > ClaimTerms::MAX_RETENTION
        {
            return Err(Error::Invalid(
                "jobs.retention is at most jobs.max_retention, and that at most ten years",
            ));
        }
        store.prepare(MIGRATIONS).await?;
        let inner = Inner {
            engine: engine.clone(),
            store: store.clone(),
            environment: environment.to_owned(),
            batches: Batches::start(store, engine.env()),
            depths: Depths::default(),
            with_end: store.with_settlement(end::LOCK, end::END),
            with_note: store.with_claim(end::NOTE),
            with_retry: store.with_claim(list::REVIVE),
            leased: quick_cache::sync::Cache::new(REMEMBERED),
            config,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

impl Inner {
    /// Where a key lives: apart from the keys of other doors.
    fn namespace(&self, tenant: &str, scope: &str) -> Result<Namespace, Error> {
        let namespace = Namespace::new(&self.environment, tenant, &format!("job:{scope}"));
        namespace.map_err(|_| Error::Invalid("the environment, tenant or scope can't be used"))
    }

    /// Under which number workers look for jobs.
    fn lane(&self, tenant: &str, kind: &str) -> Uuid {
        let mut hasher = blake3::Hasher::new_derive_key("semel 2026-11 lane of jobs");
        for part in [self.environment.as_str(), tenant, kind] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        Uuid::from_bytes(std::array::from_fn(|index| digest.as_bytes()[index]))
    }
}

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl Queue for PostgresQueue {
    fn enqueue(&self, jobs: Vec<NewJob>) -> BoxFuture<'_, Vec<Result<SubmitOutcome, Error>>> {
        // All at once: those that are new are written together.
        let each = jobs.into_iter().map(|job| self.inner.submit(job));
        Box::pin(join_all(each))
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

    fn name(&self) -> &'static str {
        "postgres"
    }
}
