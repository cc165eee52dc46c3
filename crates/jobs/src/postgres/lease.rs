//! Leases jobs, extends leases by heartbeats, and fails jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel_core::Certainty;
use semel_stores::postgres::{Bound, PostgresStore};
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::row::{self, LeasedRow, held_columns};
use super::{Inner, micros, uuid};
use crate::error::Error;
use crate::job::{JobId, JobState, MAX_ERROR_BYTES};
use crate::queue::JobFailure;
use crate::work::{JobLease, LeaseOptions, LeaseToken, check_span};

/// The first by priority, then by age, in every lane: each of them a look at the beginning of a
/// range of the index, however many wait behind. What another worker is taking is passed over.
///
/// Sent again (`$6`), it first looks for what an earlier sending has taken under the same token,
/// and takes nothing else where there is any: no attempt is used up by a reply that was lost.
macro_rules! take {
    ($most:literal) => {
        concat!(
            "WITH mine AS (SELECT id FROM semel.jobs WHERE $6 AND state = 2 AND lane = ANY ($1) AND lease = $3), \
             picked AS (SELECT q.id FROM (SELECT p.priority::smallint AS priority, l.lane \
             FROM generate_series(0, 9) AS p (priority), unnest($1::uuid[]) WITH ORDINALITY AS l (lane, n) ORDER BY 1 DESC, l.n) o, \
             LATERAL (SELECT id FROM semel.jobs WHERE state = 1 AND lane = o.lane AND priority = o.priority \
             AND due_us <= (SELECT semel.now_us()) ORDER BY due_us LIMIT $2 FOR UPDATE SKIP LOCKED) q \
             WHERE NOT EXISTS (SELECT 1 FROM mine) LIMIT ",
            $most,
            ") UPDATE semel.jobs SET state = 2, attempt = attempt + CASE WHEN state = 1 THEN 1 ELSE 0 END, lease = $3, worker = $4, \
             started_us = semel.now_us(), due_us = semel.now_us() + $5 \
             WHERE id = ANY (ARRAY(SELECT id FROM picked UNION ALL SELECT id FROM mine)) RETURNING ",
            held_columns!(),
            ", kind, params, priority, created_us"
        )
    };
}

const TAKE: &str = take!("$2");

/// The same where only so many may run, for one lane; under a lock, so that no two count at once.
const TAKE_BOUNDED: &str = take!(
    "(SELECT greatest(0, least($2, $7 - (SELECT count(*) FROM semel.jobs r \
     WHERE r.state = 2 AND r.lane = ($1::uuid[])[1]))))"
);

/// What was taken back but not yet given away may be kept after all.
const KEEP: &str = "UPDATE semel.jobs SET state = 2, due_us = semel.now_us() + $3 \
    WHERE id = $1 AND lease = $2 AND (state = 2 OR (state = 1 AND worker IS NOT NULL)) RETURNING 1";

const AGAIN: &str = "UPDATE semel.jobs SET state = 1, worker = NULL, error = $3, due_us = semel.now_us() + $4 \
    WHERE id = $1 AND lease = $2 AND (state = 2 OR (state = 1 AND worker IS NOT NULL)) AND attempt < max_attempts RETURNING 1";

impl Inner {
    pub(super) async fn lease(&self, ask: &LeaseOptions) -> Result<Vec<JobLease>, Error> {
        ask.check()?;
        let mut leased = Vec::new();
        let ended = self.take_up_to(ask, &mut leased).await;
        match ended {
            Err(error) if leased.is_empty() => Err(error),
            // Jobs that were leased are returned in spite of the error, because no other worker
            // would get them.
            Ok(()) | Err(_) => Ok(leased),
        }
    }

    /// Takes the kinds in random order, so that none starves behind a kind that never runs empty.
    async fn take_up_to(
        &self,
        ask: &LeaseOptions,
        leased: &mut Vec<JobLease>,
    ) -> Result<(), Error> {
        let chance = self.engine.env().entropy.next_u128();
        let mut kinds: Vec<&String> = ask.kinds.iter().collect();
        let first = usize::try_from(chance % kinds.len().max(1) as u128).unwrap_or(0);
        kinds.rotate_left(first);
        let is_free = |kind: &&String| self.config.limits.running_of(kind).is_none();
        let free_first = chance >> 127 == 0;
        let (free, bounded): (Vec<_>, Vec<_>) = kinds.into_iter().partition(is_free);
        let free: Vec<Uuid> = free
            .iter()
            .map(|kind| self.lane(&ask.tenant, kind))
            .collect();
        if free_first {
            self.take(ask, TAKE, &free, None, leased).await?;
        }
        for kind in bounded {
            let lanes = [self.lane(&ask.tenant, kind)];
            let most = self.config.limits.running_of(kind);
            self.take(ask, TAKE_BOUNDED, &lanes, most, leased).await?;
        }
        if !free_first {
            self.take(ask, TAKE, &free, None, leased).await?;
        }
        Ok(())
    }

    async fn take(
        &self,
        ask: &LeaseOptions,
        text: &'static str,
        lanes: &[Uuid],
        bound: Option<u64>,
        leased: &mut Vec<JobLease>,
    ) -> Result<(), Error> {
        let most = ask.most - leased.len();
        if most == 0 || lanes.is_empty() {
            return Ok(());
        }
        let token = LeaseToken(self.engine.env().entropy.next_u128());
        let is_sent = AtomicBool::new(false);
        let bind = |query: Bound| {
            let query = query
                .bind(lanes.to_vec())
                .bind(i64::try_from(most).unwrap_or(1))
                .bind(uuid(token.0))
                .bind(ask.worker.clone())
                .bind(micros(ask.span))
                .bind(is_sent.swap(true, Ordering::Relaxed));
            match bound {
                None => query,
                Some(bound) => query.bind(i64::try_from(bound).unwrap_or(i64::MAX)),
            }
        };
        let send = async || match bound {
            None => self.store.rows(text, bind).await,
            Some(_) => self.store.rows_under_lock(lock(lanes), text, bind).await,
        };
        let rows = match send().await {
            // Nobody else would be told of what it may have taken.
            Err(error) if error.certainty == Certainty::Unknown => send().await?,
            other => other?,
        };
        let mut taken = Vec::with_capacity(rows.len());
        for row in &rows {
            let held = row::held(row)?;
            taken.push(read(row, &held, token, ask.span)?);
            // Its end then needs no look.
            self.leased.insert((held.id, token), Arc::new(held));
        }
        // The statement picks them in order, and gives them back in any.
        taken.sort_by_key(|(order, _)| *order);
        leased.extend(taken.into_iter().map(|(_, job)| job));
        Ok(())
    }

    pub(super) async fn heartbeat(
        &self,
        id: JobId,
        lease: LeaseToken,
        span: Duration,
    ) -> Result<(), Error> {
        check_span(span)?;
        let bind = |query: Bound| owned(query, id, lease).bind(micros(span));
        if self.store.rows(KEEP, bind).await?.is_empty() {
            return Err(self.lost(id).await);
        }
        Ok(())
    }

    pub(super) async fn fail(
        self: &Arc<Self>,
        id: JobId,
        lease: LeaseToken,
        failed: &JobFailure,
    ) -> Result<JobState, Error> {
        let error = cut(&failed.error);
        let held = self.held(id, lease).await?;
        if held.state == JobState::Queued && held.worker.is_none() {
            return Ok(JobState::Queued); // Told again.
        }
        if failed.retryable && held.attempt < held.max_attempts {
            let pause = failed
                .delay
                .unwrap_or_else(|| self.config.pause_after(held.attempt));
            let pause = micros(pause.min(crate::job::MAX_DELAY));
            let bind = |query: Bound| owned(query, id, lease).bind(error.clone()).bind(pause);
            if self.store.rows(AGAIN, bind).await?.is_empty() {
                return Err(Error::LeaseLost);
            }
            return Ok(JobState::Queued);
        }
        self.bury(id, lease, error).await?;
        Ok(JobState::Dead)
    }

    /// Why a job isn't the worker's.
    async fn lost(&self, id: JobId) -> Error {
        match self.look(id).await {
            Ok(None) => Error::NotFound,
            Ok(Some(_)) => Error::LeaseLost,
            Err(error) => error,
        }
    }
}

/// Under which number those who count exclude each other.
fn lock(lanes: &[Uuid]) -> i64 {
    let lane = lanes.first().map_or([0; 16], |lane| *lane.as_bytes());
    i64::from_be_bytes(std::array::from_fn(|index| lane[index]))
}

fn owned(query: Bound, id: JobId, lease: LeaseToken) -> Bound {
    query.bind(uuid(id.as_u128())).bind(uuid(lease.0))
}

/// What is kept of an error's text.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_ERROR_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', " ")
}

type Order = (std::cmp::Reverse<i16>, i64);

/// The columns behind those of [`row::held`].
fn read(
    row: &PgRow,
    held: &LeasedRow,
    token: LeaseToken,
    span: Duration,
) -> Result<(Order, JobLease), Error> {
    let params: Vec<u8> = PostgresStore::column(row, 18)?;
    let order = (
        std::cmp::Reverse(PostgresStore::column(row, 19)?),
        PostgresStore::column(row, 20)?,
    );
    let job = JobLease {
        id: held.id,
        request_id: held.request_id,
        kind: PostgresStore::column(row, 17)?,
        params: params.into(),
        attempt: held.attempt,
        max_attempts: held.max_attempts,
        token,
        span,
    };
    Ok((order, job))
}
