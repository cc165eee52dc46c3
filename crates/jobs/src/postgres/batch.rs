//! Group commit: writes all waiting jobs in one statement. Jobs that arrive during a write go with
//! the next.

use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{Certainty, Claim, Env, Fence, StoreError, StoreErrorKind};
use semel_stores::postgres::{Bound, ClaimStatement, PostgresStore};
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::uuid;
use crate::job::{JobId, JobRef, RequestId};

/// The most jobs in one statement, and the most bytes of parameters.
const MOST_JOBS: usize = 1000;
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// Statements at a time.
const AT_ONCE: usize = 4;

/// The most jobs that wait to be written. Beyond it, submitters wait (back-pressure).
const MOST_WAITING: usize = 4096;

/// The extra SQL of a claim: writes the job. If an unfinished job has the same key and parameters,
/// that is the job; then the record's lease is noted there.
const INSERT: &str = ", given AS (SELECT * FROM unnest($+1::bigint[], $+2::uuid[], $+3::uuid[], $+4::uuid[], $+5::smallint[], \
    $+6::smallint[], $+7::smallint[], $+8::bigint[], $+9::text[], $+10::text[], $+11::text[], $+12::text[], $+13::text[], \
    $+14::bytea[], $+15::uuid[], $+16::uuid[], $+17::uuid[], $+18::bytea[], $+19::bigint[], $+20::text[]) \
    AS g (n, id, request_id, lane, priority, max_attempts, secret_id, delay_us, environment, tenant, kind, client, hint, \
    params, address, seal, token, fingerprint, retention_ms, scope)), \
    also AS (INSERT INTO semel.jobs AS j (id, request_id, lane, state, priority, attempt, max_attempts, secret_id, due_us, \
    created_us, environment, tenant, kind, client, hint, params, address, seal, fence, token, fingerprint, retention_ms, scope) \
    SELECT g.id, g.request_id, g.lane, 1, g.priority, 0, g.max_attempts, g.secret_id, semel.now_us() + g.delay_us, \
    semel.now_us(), g.environment, g.tenant, g.kind, g.client, g.hint, g.params, g.address, g.seal, won.fence, g.token, \
    g.fingerprint, g.retention_ms, g.scope FROM given g LEFT JOIN won ON won.n = g.n \
    WHERE won.fence IS NOT NULL OR (g.n = 0 AND NOT EXISTS (SELECT 1 FROM semel.jobs o WHERE o.id = g.id)) \
    ORDER BY g.address \
    ON CONFLICT (address) WHERE state < 3 DO UPDATE SET fence = excluded.fence, token = excluded.token \
    WHERE j.fingerprint = excluded.fingerprint \
    RETURNING j.id, j.request_id, j.address) \
    SELECT won.n, won.fence, also.id, also.request_id FROM won JOIN given ON given.n = won.n \
    LEFT JOIN also ON also.address = given.address";

/// A job, ready to be written.
pub(super) struct PreparedJob {
    pub(super) job: JobRef,
    pub(super) lane: Uuid,
    pub(super) priority: i16,
    pub(super) max_attempts: i16,
    pub(super) delay_us: i64,
    pub(super) environment: String,
    pub(super) tenant: String,
    pub(super) kind: String,
    pub(super) scope: String,
    pub(super) client: String,
    pub(super) params: bytes::Bytes,
    pub(super) retention_ms: i64,
}

/// A claim that won.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenJob {
    pub(super) fence: Fence,
    /// The job that the key stands for; `None` if one with other parameters is unfinished.
    pub(super) job: Option<JobRef>,
}

struct WriteRequest {
    job: Arc<PreparedJob>,
    claim: Option<Claim>,
    reply: oneshot::Sender<StoreResult<Option<WrittenJob>>>,
}

/// Where jobs go to be written.
pub(super) struct Batches {
    asks: mpsc::Sender<WriteRequest>,
    with: Arc<ClaimStatement>,
}

impl Batches {
    pub(super) fn start(store: &PostgresStore, env: &Env) -> Self {
        let (asks, waiting) = mpsc::channel(MOST_WAITING);
        let with = Arc::new(store.with_claim(INSERT));
        let writer = BatchWriter {
            store: store.clone(),
            with: Arc::clone(&with),
            room: Arc::new(Semaphore::new(AT_ONCE)),
            env: env.clone(),
        };
        env.spawn.spawn(Box::pin(writer.run(waiting)));
        Self { asks, with }
    }

    /// Writes a job and, if there is a claim, the record; `None` if the claim met a record.
    pub(super) async fn write(
        &self,
        job: &Arc<PreparedJob>,
        claim: Option<&Claim>,
    ) -> StoreResult<Option<WrittenJob>> {
        let (reply, answer) = oneshot::channel();
        let ask = WriteRequest {
            job: Arc::clone(job),
            claim: claim.cloned(),
            reply,
        };
        self.asks.send(ask).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// What is written with a claim that met a record and may replace it.
    pub(super) fn with(&self) -> &ClaimStatement {
        &self.with
    }
}

fn ended() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        Certainty::Unknown,
        "the process is ending",
    )
}

struct BatchWriter {
    store: PostgresStore,
    with: Arc<ClaimStatement>,
    room: Arc<Semaphore>,
    env: Env,
}

impl BatchWriter {
    async fn run(self, mut waiting: mpsc::Receiver<WriteRequest>) {
        let mut left: Option<WriteRequest> = None;
        loop {
            // Waits for a free statement first, so that jobs that arrive meanwhile join the batch.
            let Ok(place) = Arc::clone(&self.room).acquire_owned().await else {
                return;
            };
            let first = match left.take() {
                Some(ask) => Some(ask),
                None => waiting.recv().await,
            };
            let Some(first) = first else { return };
            let mut bytes = first.job.params.len();
            let mut batch = vec![first];
            while batch.len() < MOST_JOBS {
                let Ok(ask) = waiting.try_recv() else { break };
                bytes += ask.job.params.len();
                if bytes > MOST_BYTES {
                    left = Some(ask);
                    break;
                }
                batch.push(ask);
            }
            let (store, with) = (self.store.clone(), Arc::clone(&self.with));
            self.env.spawn.spawn(Box::pin(async move {
                write(&store, &with, batch).await;
                drop(place);
            }));
        }
    }
}

async fn write(store: &PostgresStore, with: &ClaimStatement, batch: Vec<WriteRequest>) {
    let claims: Vec<Claim> = batch.iter().filter_map(|ask| ask.claim.clone()).collect();
    let mut next = 0;
    let rows: Vec<(i64, &PreparedJob, Option<&Claim>)> = batch
        .iter()
        .map(|ask| {
            next += i64::from(ask.claim.is_some());
            let n = if ask.claim.is_some() { next } else { 0 };
            (n, &*ask.job, ask.claim.as_ref())
        })
        .collect();
    let written = store
        .claim_with(with, &claims, |query| bind(query, &rows))
        .await
        .and_then(|rows| rows.iter().map(read).collect::<StoreResult<Vec<_>>>());
    let numbers: Vec<i64> = rows.iter().map(|(n, ..)| *n).collect();
    for (ask, n) in batch.into_iter().zip(numbers) {
        let answer = match &written {
            Err(error) => Err(error.clone()),
            Ok(written) => Ok(written.iter().find(|(won, _)| *won == n).map(|(_, w)| *w)),
        };
        // A caller that is gone gets the outcome on a retry.
        let _ = ask.reply.send(answer);
    }
}

/// The arguments of one job.
pub(super) fn bind_one(query: Bound, job: &PreparedJob, claim: &Claim) -> Bound {
    bind(query, &[(1, job, Some(claim))])
}

/// → which claim won, and what it wrote.
pub(super) fn read(row: &PgRow) -> StoreResult<(i64, WrittenJob)> {
    let fence: i64 = PostgresStore::column(row, 1)?;
    let id: Option<Uuid> = PostgresStore::column(row, 2)?;
    let request: Option<Uuid> = PostgresStore::column(row, 3)?;
    let job = id.zip(request).map(|(id, request)| JobRef {
        id: JobId::from_u128(id.as_u128()),
        request_id: RequestId::from_u128(request.as_u128()),
    });
    let fence = Fence(fence.unsigned_abs());
    Ok((PostgresStore::column(row, 0)?, WrittenJob { fence, job }))
}

type Row<'a> = (i64, &'a PreparedJob, Option<&'a Claim>);

fn bind(query: Bound, rows: &[Row<'_>]) -> Bound {
    fn each<T>(rows: &[Row<'_>], of: impl Fn(&PreparedJob) -> T) -> Vec<T> {
        rows.iter().map(|(_, job, _)| of(job)).collect()
    }
    fn of_claim<T>(rows: &[Row<'_>], of: impl Fn(&Claim) -> T) -> Vec<Option<T>> {
        rows.iter().map(|(.., claim)| claim.map(&of)).collect()
    }
    query
        .bind(rows.iter().map(|(n, ..)| *n).collect::<Vec<i64>>())
        .bind(each(rows, |job| uuid(job.job.id.as_u128())))
        .bind(each(rows, |job| uuid(job.job.request_id.as_u128())))
        .bind(each(rows, |job| job.lane))
        .bind(each(rows, |job| job.priority))
        .bind(each(rows, |job| job.max_attempts))
        .bind(
            rows.iter()
                .map(|(.., claim)| secret(*claim))
                .collect::<Vec<i16>>(),
        )
        .bind(each(rows, |job| job.delay_us))
        .bind(each(rows, |job| job.environment.clone()))
        .bind(each(rows, |job| job.tenant.clone()))
        .bind(each(rows, |job| job.kind.clone()))
        .bind(each(rows, |job| job.client.clone()))
        .bind(
            rows.iter()
                .map(|(.., claim)| hint(*claim))
                .collect::<Vec<String>>(),
        )
        .bind(each(rows, |job| job.params.to_vec()))
        .bind(of_claim(rows, |claim| {
            Uuid::from_bytes(claim.identity.address())
        }))
        .bind(of_claim(rows, |claim| {
            Uuid::from_bytes(claim.identity.seal())
        }))
        .bind(of_claim(rows, |claim| uuid(claim.token.0)))
        .bind(of_claim(rows, |claim| {
            claim.fingerprint.as_bytes().to_vec()
        }))
        .bind(each(rows, |job| job.retention_ms))
        .bind(each(rows, |job| job.scope.clone()))
}

fn secret(claim: Option<&Claim>) -> i16 {
    claim.map_or(0, |claim| claim.secret_id.cast_signed())
}

fn hint(claim: Option<&Claim>) -> String {
    claim.map_or_else(String::new, |claim| claim.hint.as_str().to_owned())
}
