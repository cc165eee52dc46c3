//! Reads, lists and counts jobs, and retries dead letters.

use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{
    Claim, Claimed, Fence, Fingerprint, Identity, Record, Settlement, State, Store, Token,
};
use semel_stores::postgres::{Bound, PostgresStore};
use sqlx::types::Uuid;

use super::answer::job_of;
use super::row::{self, columns};
use super::{Inner, uuid};
use crate::error::Error;
use crate::job::{Job, JobId, JobRef, JobState, RequestId};
use crate::queue::{JobCounts, JobPage, JobQuery};

const LOOK: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel.jobs WHERE id = $1 AND environment = $2"
);

const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel.jobs WHERE environment = $1 AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR kind = $3) \
     AND ($4::smallint IS NULL OR state = $4) AND ($5::uuid IS NULL OR id < $5) ORDER BY id DESC LIMIT $6"
);

const UNFINISHED: &str = "SELECT id, request_id, token, fingerprint FROM semel.jobs WHERE address = $1 AND seal = $2 AND state < 3";

const COUNT: &str = "SELECT count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2), \
    count(*) FILTER (WHERE state = 4) FROM semel.jobs WHERE state <> 3 AND environment = $1";

/// The extra SQL of claiming a dead letter's key: queues the same job again.
pub(super) const REVIVE: &str = ", also AS (UPDATE semel.jobs j SET state = 1, attempt = 0, due_us = semel.now_us(), \
    lease = NULL, worker = NULL, error = NULL, fence = won.fence, token = $+2 FROM won WHERE j.id = $+1 AND j.state = 4 \
    RETURNING 1) SELECT won.n, won.fence, (SELECT count(*) FROM also) FROM won";

const REVIVE_ALONE: &str = "UPDATE semel.jobs SET state = 1, attempt = 0, due_us = semel.now_us(), lease = NULL, \
    worker = NULL, error = NULL WHERE id = $1 AND state = 4 RETURNING 1";

/// A job that has not ended.
pub(super) struct UnfinishedJob {
    pub(super) job: JobRef,
    /// Of the claim that it knows of.
    pub(super) token: Token,
    /// Of its parameters.
    pub(super) fingerprint: Fingerprint,
}

impl Inner {
    pub(super) async fn look(&self, id: JobId) -> Result<Option<Job>, Error> {
        let bind = |query: Bound| {
            query
                .bind(uuid(id.as_u128()))
                .bind(self.environment.clone())
        };
        let rows = self.store.rows(LOOK, bind).await?;
        rows.first().map(row::job).transpose()
    }

    pub(super) async fn list(&self, query: &JobQuery) -> Result<JobPage, Error> {
        let most = query.page_size();
        let bind = |bound: Bound| {
            bound
                .bind(self.environment.clone())
                .bind(query.tenant.clone())
                .bind(query.kind.clone())
                .bind(query.state.map(|state| state as i16))
                .bind(query.after.map(|id| uuid(id.as_u128())))
                .bind(i64::try_from(most).unwrap_or(1000))
        };
        let rows = self.store.rows(LIST, bind).await?;
        let jobs: Vec<Job> = rows.iter().map(row::job).collect::<Result<_, _>>()?;
        let next = (jobs.len() == most)
            .then(|| jobs.last().map(|job| job.id))
            .flatten();
        Ok(JobPage { jobs, next })
    }

    pub(super) async fn counts(&self) -> Result<JobCounts, Error> {
        let bind = |query: Bound| query.bind(self.environment.clone());
        let rows = self.store.rows(COUNT, bind).await?;
        let Some(row) = rows.first() else {
            return Ok(JobCounts::default());
        };
        let number = |at| PostgresStore::column::<i64>(row, at).map(i64::unsigned_abs);
        Ok(JobCounts {
            queued: number(0)?,
            running: number(1)?,
            dead: number(2)?,
            ..JobCounts::default()
        })
    }

    /// The job of a key that has not ended.
    pub(super) async fn unfinished(
        &self,
        identity: &Identity,
    ) -> StoreResult<Option<UnfinishedJob>> {
        let bind = |query: Bound| {
            query
                .bind(Uuid::from_bytes(identity.address()))
                .bind(Uuid::from_bytes(identity.seal()))
        };
        let rows = self.store.rows(UNFINISHED, bind).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let number = |at| PostgresStore::column::<Uuid>(row, at).map(|found| found.as_u128());
        let job = JobRef {
            id: JobId::from_u128(number(0)?),
            request_id: RequestId::from_u128(number(1)?),
        };
        Ok(Some(UnfinishedJob {
            job,
            token: Token(number(2)?),
            fingerprint: row::fingerprint(row, 3)?,
        }))
    }

    pub(super) async fn retry(self: &Arc<Self>, id: JobId) -> Result<(), Error> {
        let bind = |query: Bound| query.bind(uuid(id.as_u128()));
        let rows = self.store.rows(row::HELD, bind).await?;
        let held = row::held(rows.first().ok_or(Error::NotFound)?)?;
        if held.state != JobState::Dead {
            return Err(Error::NotDead);
        }
        let Some(record) = held.record else {
            let rows = self.store.rows(REVIVE_ALONE, bind).await?;
            return if rows.is_empty() {
                Err(Error::NotDead)
            } else {
                Ok(())
            };
        };
        let claim = Claim {
            identity: record.identity,
            fingerprint: record.fingerprint,
            token: Token(self.engine.env().entropy.next_u128()),
            terms: self.policy(record.retention).terms()?,
            secret_id: record.secret_id,
            namespace: self.namespace(&held.tenant, &record.scope)?,
            hint: record.hint,
            retry: false,
        };
        let revived = self.revive(id, &claim).await?;
        self.engine.forget(&claim.identity);
        match revived {
            Some((_, 1)) => Ok(()),
            // The key is ours, and there is no dead letter any more: nobody must wait for a job
            // that isn't there.
            Some((fence, _)) => {
                let grant = semel_core::Grant::first_run(&claim, fence);
                self.store.settle(&grant, &Settlement::Release).await?;
                Err(Error::NotDead)
            }
            None => Err(Error::Superseded),
        }
    }

    /// Claims the key of a dead letter anew, and lets the job wait again, in one step. → the fence,
    /// and how many jobs wait again; `None` if the key has another meaning by now.
    async fn revive(&self, id: JobId, claim: &Claim) -> Result<Option<(Fence, i64)>, Error> {
        let bind = |query: Bound| query.bind(uuid(id.as_u128())).bind(uuid(claim.token.0));
        // A failed answer is final; only its own job may take it away.
        let is_its_own = |found: &Record| {
            let head = found.answer.as_ref().map(|answer| answer.head.clone());
            let job = head.and_then(|head| job_of(&head));
            found.state == State::Failed && job.is_some_and(|job| job.id == id)
        };
        let asks = std::slice::from_ref(claim);
        let mut rows = self.store.claim_with(&self.with_retry, asks, bind).await?;
        if rows.is_empty() {
            let again = self
                .store
                .claim_as_if_released(&self.with_retry, claim, is_its_own, bind)
                .await?;
            rows = match again {
                // Sent again after its reply was lost: the job knows of this claim, or there was
                // none.
                Some((Claimed::Won(grant), rows)) if rows.is_empty() => {
                    let found = self.unfinished(&claim.identity).await?;
                    let revived = found.is_some_and(|found| found.token == claim.token);
                    return Ok(Some((grant.fence, i64::from(revived))));
                }
                Some((_, rows)) => rows,
                None => Vec::new(),
            };
        }
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let fence = PostgresStore::column::<i64>(row, 1)?.unsigned_abs();
        Ok(Some((Fence(fence), PostgresStore::column(row, 2)?)))
    }
}
