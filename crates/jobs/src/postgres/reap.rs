//! The reaper: requeues jobs of crashed workers or makes them dead letters, and removes jobs whose
//! retention is over.

use std::sync::Arc;

use semel_stores::postgres::{Bound, PostgresStore};
use sqlx::types::Uuid;

use super::{Inner, micros, uuid};
use crate::error::Error;
use crate::job::JobId;
use crate::queue::ReapReport;
use crate::work::LeaseToken;

/// At once, so that no statement is a long one.
const AT_ONCE: i64 = 500;
const BURIED_AT_ONCE: i64 = 100;

/// The same job, with the same id, waits again. Its last worker may still say that it is done,
/// until another has it.
const REQUEUE: &str = "WITH lapsed AS (SELECT id FROM semel.jobs WHERE state = 2 AND due_us < (SELECT semel.now_us()) \
    AND attempt < max_attempts ORDER BY due_us LIMIT $1 FOR UPDATE SKIP LOCKED) \
    UPDATE semel.jobs j SET state = 1, due_us = semel.now_us() FROM lapsed WHERE j.id = lapsed.id RETURNING 1";

/// Takes jobs that were started often enough, to bury them: from now on their last workers are too
/// late. A reaper that vanishes leaves them to the next.
const SEIZE: &str = "WITH lapsed AS (SELECT id FROM semel.jobs WHERE state = 2 AND due_us < (SELECT semel.now_us()) \
    AND attempt >= max_attempts AND environment = $1 ORDER BY due_us LIMIT $2 FOR UPDATE SKIP LOCKED) \
    UPDATE semel.jobs j SET lease = $3, due_us = semel.now_us() + 60000000 FROM lapsed WHERE j.id = lapsed.id RETURNING j.id";

const SWEEP: &str = "DELETE FROM semel.jobs WHERE id = ANY (ARRAY(SELECT id FROM semel.jobs \
    WHERE (state = 3 AND due_us < (SELECT semel.now_us()) - retention_ms * 1000) \
    OR (state = 4 AND environment = $3 AND due_us < (SELECT semel.now_us()) - $1) ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1";

const VANISHED: &str = "the worker vanished, and it was the last attempt";

impl Inner {
    pub(super) async fn reap(self: &Arc<Self>) -> Result<ReapReport, Error> {
        let requeued = self.all(REQUEUE, |query| query.bind(AT_ONCE)).await?;
        let mut buried = 0;
        loop {
            let ids = self.seize().await?;
            let (lease, ids) = ids;
            for id in &ids {
                match self.bury(*id, lease, VANISHED.to_owned()).await {
                    Ok(()) => buried += 1,
                    Err(Error::LeaseLost | Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            if ids.len() < usize::try_from(BURIED_AT_ONCE).unwrap_or(usize::MAX) {
                break;
            }
        }
        let kept = micros(self.config.max_retention);
        let swept = self
            .all(SWEEP, |query| {
                let query = query.bind(kept).bind(AT_ONCE);
                query.bind(self.environment.clone())
            })
            .await?;
        Ok(ReapReport {
            requeued,
            buried,
            swept,
            idle: false,
        })
    }

    /// Again and again, until there is no more. → how many rows.
    async fn all(&self, text: &'static str, bind: impl Fn(Bound) -> Bound) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            let rows = self.store.rows(text, &bind).await?.len() as u64;
            total += rows;
            if rows < AT_ONCE.unsigned_abs() {
                return Ok(total);
            }
        }
    }

    async fn seize(&self) -> Result<(LeaseToken, Vec<JobId>), Error> {
        let lease = LeaseToken(self.engine.env().entropy.next_u128());
        let bind = |query: Bound| {
            query
                .bind(self.environment.clone())
                .bind(BURIED_AT_ONCE)
                .bind(uuid(lease.0))
        };
        let rows = self.store.rows(SEIZE, bind).await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: Uuid = PostgresStore::column(row, 0)?;
            ids.push(JobId::from_u128(id.as_u128()));
        }
        Ok((lease, ids))
    }
}
