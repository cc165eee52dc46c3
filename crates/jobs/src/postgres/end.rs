//! Ends a job and settles the record of its key, in one statement.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::engine::{Problem, RemoteLease, Response, Verdict};
use semel_core::policy::Policy;
use semel_core::{Answer, Claim, Claimed, Token};
use semel_stores::postgres::Bound;

use super::answer::{check_json, head};
use super::end_store::{EndStore, JobEnd, bind_end};
use super::row::{self, KeyRecord, LeasedRow};
use super::{Inner, uuid};
use crate::error::Error;
use crate::job::{JobId, JobRef, JobState};
use crate::work::LeaseToken;

/// Ends a job, even after its lease has ended, as long as no other worker has it.
pub(super) const LOCK: &str =
    "SELECT 1 FROM semel.jobs WHERE id = $+1 AND lease = $+2 AND state < 3 FOR UPDATE";

pub(super) const END: &str = "UPDATE semel.jobs SET state = $+3, result = $+4, result_bytes = $+5, error = $+6, \
    due_us = semel.now_us() WHERE id = $+1 AND lease = $+2 AND state < 3";

/// The same for a job whose key has no record that could be settled.
const END_ALONE: &str = "UPDATE semel.jobs SET state = $3, result = $4, result_bytes = $5, error = $6, \
    due_us = semel.now_us() WHERE id = $1 AND lease = $2 AND state < 3 RETURNING 1";

/// The extra SQL of a repeated claim: notes the new lease in the job, because otherwise it could
/// not be settled.
pub(super) const NOTE: &str = ", also AS (UPDATE semel.jobs j SET fence = won.fence, token = $+2 FROM won \
    WHERE j.id = $+1 AND j.state < 3) SELECT won.n FROM won";

/// How many times an end that lost its compare-and-swap is retried.
const TRIES: usize = 8;

impl Inner {
    pub(super) async fn complete(
        self: &Arc<Self>,
        id: JobId,
        lease: LeaseToken,
        answer: Bytes,
    ) -> Result<(), Error> {
        check_json(&answer)?;
        let end = JobEnd {
            state: JobState::Done,
            answer: Answer::from_body(answer).capped(self.config.max_answer_bytes),
            error: None,
        };
        self.end(id, lease, end).await
    }

    /// Makes it a dead letter.
    pub(super) async fn bury(
        self: &Arc<Self>,
        id: JobId,
        lease: LeaseToken,
        error: String,
    ) -> Result<(), Error> {
        let end = JobEnd {
            state: JobState::Dead,
            answer: Answer::from_body(error.clone()),
            error: Some(error),
        };
        self.end(id, lease, end).await
    }

    /// The job, if it is this worker's.
    pub(super) async fn held(&self, id: JobId, lease: LeaseToken) -> Result<LeasedRow, Error> {
        let bind = |query: Bound| query.bind(uuid(id.as_u128()));
        let rows = self.store.rows(row::HELD, bind).await?;
        let held = row::held(rows.first().ok_or(Error::NotFound)?)?;
        if held.lease == Some(lease) {
            return Ok(held);
        }
        Err(Error::LeaseLost)
    }

    async fn end(self: &Arc<Self>, id: JobId, lease: LeaseToken, end: JobEnd) -> Result<(), Error> {
        let end = Arc::new(end);
        // The remembered lease may be out of date: then the statement changes nothing, and the next
        // read tells.
        let mut remembered = self.leased.remove(&(id, lease)).map(|(_, held)| held);
        for _ in 0..TRIES {
            let held = match remembered.take() {
                Some(held) => held,
                None => Arc::new(self.held(id, lease).await?),
            };
            if held.state.has_ended() {
                // Told again, or told otherwise.
                return if held.state == end.state {
                    Ok(())
                } else {
                    Err(Error::LeaseLost)
                };
            }
            let Some(record) = held.record.clone() else {
                self.end_alone(id, lease, &end).await?;
                continue;
            };
            let run = Arc::new(EndStore {
                queue: Arc::clone(self),
                namespace: self.namespace(&held.tenant, &record.scope)?,
                place: (id, lease),
                end: Arc::clone(&end),
                record: record.clone(),
                not_held: Mutex::new(false),
            });
            let remote = RemoteLease::new(record.identity, record.fence, record.token);
            let job = JobRef {
                id: held.id,
                request_id: held.request_id,
            };
            let response = self.settle(&run, remote, job).await;
            match response {
                Response::Problem(Problem::LeaseLost { .. }) => {
                    let not_held = *run.not_held.lock();
                    if not_held {
                        self.claim_again(&run, &held).await?;
                    }
                }
                Response::Problem(problem) => return Err(problem.into()),
                _ => return Ok(()),
            }
        }
        Err(Error::LeaseLost)
    }

    async fn settle(&self, run: &Arc<EndStore>, lease: RemoteLease, job: JobRef) -> Response<()> {
        let answer = Answer {
            head: head(job),
            body: run.end.answer.body.clone(),
        };
        let verdict = match run.end.state {
            JobState::Dead => Verdict::Fail(answer),
            _ => Verdict::Complete(answer),
        };
        let engine = self.engine.with_store(run.clone());
        let most = self
            .config
            .max_answer_bytes
            .max(crate::job::MAX_ERROR_BYTES);
        let policy = Arc::new(Policy::default().with_max_answer_bytes(most));
        Box::pin(engine.settle(lease, verdict, |_| Some(policy))).await
    }

    async fn end_alone(&self, id: JobId, lease: LeaseToken, end: &JobEnd) -> Result<(), Error> {
        let bind = |query: Bound| bind_end(query, (id, lease), end);
        self.store.rows(END_ALONE, bind).await?;
        Ok(())
    }

    /// The record has expired, or an operator has released it, before the job was done: claims it
    /// again, so that the answer is recorded. If the key belongs to another job by now, the job
    /// ends without a record.
    async fn claim_again(&self, run: &EndStore, held: &LeasedRow) -> Result<(), Error> {
        let KeyRecord {
            identity,
            fingerprint,
            secret_id,
            hint,
            ..
        } = run.record;
        let policy = self.policy(run.record.retention);
        let claim = Claim {
            identity,
            fingerprint,
            token: Token(self.engine.env().entropy.next_u128()),
            terms: policy.terms()?,
            secret_id,
            namespace: run.namespace.clone(),
            hint,
            retry: false,
        };
        let bind = |query: Bound| {
            let query = query.bind(uuid(held.id.as_u128()));
            query.bind(uuid(claim.token.0))
        };
        let (store, with) = (&self.store, &self.with_note);
        let asks = std::slice::from_ref(&claim);
        if !store.claim_with(with, asks, bind).await?.is_empty() {
            return Ok(());
        }
        let Some((answer, _)) = store.reclaim_with(with, &claim, bind).await? else {
            return Ok(());
        };
        match answer {
            // Busy: another submission claimed it, and has noted that in the job.
            Claimed::Won(_) | Claimed::Busy(_) => Ok(()),
            Claimed::Replay(_) | Claimed::Mismatch(_) | Claimed::InDoubt(_) => {
                let (id, lease) = run.place;
                self.end_alone(id, lease, &run.end).await
            }
        }
    }
}
