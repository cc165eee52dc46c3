//! One submission. To the engine it is an ordinary request; its claim goes through
//! [`SubmissionStore`], which also writes the job.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::engine::{Admission, Problem, Replayed, Request};
use semel_core::event::{Event, Step};
use semel_core::policy::{Mode, OnBusy, Policy, StoreDown};
use semel_core::store::{Store, StoreResult};
use semel_core::{
    BoxFuture, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant, Identity, Mismatch,
    Settlement, State, Token,
};

use super::answer::{check_json, job_of};
use super::batch::{PreparedJob, WrittenJob, bind_one, read};
use super::{Inner, micros, millis};
use crate::error::Error;
use crate::job::{JobAnswer, JobId, JobRef, NewJob, RequestId, SubmitOutcome};

/// How often a submission that met a job in flight to its end looks again.
const TRIES: usize = 4;

impl Inner {
    pub(super) async fn submit(self: &Arc<Self>, job: NewJob) -> Result<SubmitOutcome, Error> {
        job.check()?;
        let retention = self.config.retention_of(job.retention)?;
        let prepared = Arc::new(self.prepare(&job, retention));
        let Some(key) = &job.key else {
            if job.known_only {
                return Err(Error::Quota);
            }
            check_json(&job.params)?;
            self.depths.check(self, &job).await?;
            self.batches.write(&prepared, None).await?;
            self.depths.add(&job);
            return Ok(SubmitOutcome::Accepted(prepared.job));
        };
        let scope = job.scope.as_deref().unwrap_or(&job.kind);
        let namespace = self.namespace(&job.tenant, scope)?;
        let fingerprint = Fingerprint::builder(self.engine.secret())
            .part(job.kind.as_bytes())
            .json(&job.params)
            .map_err(|error| Error::Params(error.to_string()))?
            .finish();
        let policy = Arc::new(self.policy(retention));
        let identity = Identity::new(self.engine.secret(), &namespace, key);
        if let Err(full) = self.depths.check(self, &job).await
            && !self.is_known(&identity).await?
        {
            return Err(full);
        }
        if job.known_only && !self.is_known(&identity).await? {
            return Err(Error::Quota);
        }
        for _ in 0..TRIES {
            let run = Arc::new(SubmissionStore {
                queue: Arc::clone(self),
                job: Arc::clone(&prepared),
                written: Mutex::default(),
            });
            let engine = self.engine.with_store(run.clone());
            let (of, policy) = (namespace.clone(), Arc::clone(&policy));
            let request = Request::new(&engine, of, key, fingerprint, policy);
            // With a token of our own the engine never releases the lease: a claim that won has its
            // job already.
            let request = request.with_token(Token(engine.env().entropy.next_u128()));
            // A dead letter may be retried, by any process.
            let mut request = request.failures_may_change();
            if !job.client.is_empty() {
                request = request.with_actor(job.client.as_str());
            }
            request = request.with_operation(job.kind.as_str());
            let admitted = Box::pin(engine.admit(request)).await;
            if let Some(answer) = self.outcome(&run, &identity, fingerprint, admitted).await? {
                if !answer.is_duplicate() {
                    self.depths.add(&job);
                    let made = Step::JobSubmitted {
                        job: answer.job().id.as_u128(),
                    };
                    let event = Event::new(&namespace, key.hint(), identity, made);
                    self.engine.report_event(&described(event, &job));
                }
                return Ok(answer);
            }
        }
        Err(Error::Problem(Problem::Late))
    }

    /// Converts the engine's answer. `None` if the job ended meanwhile: submit again.
    async fn outcome(
        &self,
        run: &SubmissionStore,
        identity: &Identity,
        fingerprint: Fingerprint,
        admitted: Admission,
    ) -> Result<Option<SubmitOutcome>, Error> {
        let written = run.written.lock().and_then(|written| written.job);
        match admitted {
            Admission::Won(out) => match written {
                Some(job) if job == run.job.job => Ok(Some(SubmitOutcome::Accepted(job))),
                Some(job) => Ok(Some(SubmitOutcome::InProgress(job))),
                None => self.won_without_a_job(run, &out.grant).await,
            },
            Admission::Replayed(replayed) => of_record(&replayed).map(Some),
            Admission::Problem(Problem::Busy { .. }) => {
                match self.unfinished(identity).await? {
                    // Another submission holds the record for a moment, to find out what this one
                    // knows now.
                    Some(found) if found.fingerprint != fingerprint => Err(Error::Conflict),
                    found => Ok(found.map(|found| SubmitOutcome::InProgress(found.job))),
                }
            }
            Admission::Problem(Problem::Mismatch) => Err(Error::Conflict),
            Admission::Problem(problem) => Err(problem.into()),
            Admission::Unprotected => Err(Error::Problem(Problem::ShutDown)),
        }
    }

    /// The reply to the claim was lost and it was sent again, or a job with other parameters is
    /// unfinished although its record has expired.
    async fn won_without_a_job(
        &self,
        run: &SubmissionStore,
        grant: &Grant,
    ) -> Result<Option<SubmitOutcome>, Error> {
        match self.unfinished(&grant.identity).await? {
            Some(found) if found.job == run.job.job => Ok(Some(SubmitOutcome::Accepted(found.job))),
            Some(found) if found.token == grant.token => {
                Ok(Some(SubmitOutcome::InProgress(found.job)))
            }
            Some(_) => {
                self.store.settle(grant, &Settlement::Release).await?;
                Err(Error::Conflict)
            }
            None => {
                self.store.settle(grant, &Settlement::Release).await?;
                Ok(None)
            }
        }
    }

    /// Whether there is a record or an unfinished job: then a submission adds nothing to the queue.
    async fn is_known(&self, identity: &Identity) -> Result<bool, Error> {
        let record = self.store.read(identity).await?;
        let is_known = record.is_some_and(|record| record.state != State::Released);
        Ok(is_known || self.unfinished(identity).await?.is_some())
    }

    fn prepare(&self, job: &NewJob, retention: Duration) -> PreparedJob {
        let env = self.engine.env();
        let most = job.max_attempts.unwrap_or(self.config.max_attempts);
        PreparedJob {
            job: JobRef {
                id: JobId::new(env.clock.wall(), &*env.entropy),
                request_id: RequestId::new(&*env.entropy),
            },
            lane: self.lane(&job.tenant, &job.kind),
            priority: job.priority.into(),
            max_attempts: i16::try_from(most).unwrap_or(i16::MAX),
            delay_us: micros(job.delay),
            environment: self.environment.clone(),
            tenant: job.tenant.clone(),
            kind: job.kind.clone(),
            scope: job.scope.as_ref().unwrap_or(&job.kind).clone(),
            client: job.client.clone(),
            params: job.params.clone(),
            retention_ms: millis(retention),
        }
    }

    /// The record's lease is as long as possible: it only says that there is a job, and isn't the
    /// worker's lease.
    pub(super) fn policy(&self, retention: Duration) -> Policy {
        Policy::default()
            .with_lease(
                retention
                    .min(ClaimTerms::MAX_LEASE)
                    .max(ClaimTerms::MIN_LEASE),
            )
            .with_retention(retention.max(ClaimTerms::MIN_LEASE))
            .with_crash(CrashPolicy::Takeover)
            .with_max_attempts(u16::MAX)
            .with_on_busy(OnBusy::Refuse)
            .with_max_waiters_per_key(1)
            .with_max_answer_bytes(self.config.max_answer_bytes)
            .with_store_down(StoreDown::Closed)
            .with_mode(Mode::Enforce)
    }
}

/// Says who submitted which kind of job.
fn described<'a>(event: Event<'a>, job: &'a NewJob) -> Event<'a> {
    let client = (!job.client.is_empty()).then_some(job.client.as_str());
    event.with_actor(client).with_operation(job.kind.as_str())
}

/// What a record says of its job.
fn of_record(replayed: &Replayed) -> Result<SubmitOutcome, Error> {
    let answer = &replayed.replay.answer;
    // Only this crate settles records of its namespace; an operator may have resolved one without a
    // job.
    let job = job_of(&answer.head).ok_or(Error::Superseded)?;
    let body = match &answer.body {
        semel_core::AnswerBody::Kept(body) => JobAnswer::Kept(body.clone()),
        semel_core::AnswerBody::Omitted { bytes }
        | semel_core::AnswerBody::External { bytes, .. } => JobAnswer::Omitted { bytes: *bytes },
    };
    Ok(match (replayed.replay.state, body) {
        (State::Failed, JobAnswer::Kept(text)) => {
            SubmitOutcome::Failed(job, String::from_utf8_lossy(&text).into_owned())
        }
        (State::Failed, JobAnswer::Omitted { .. }) => SubmitOutcome::Failed(job, String::new()),
        (_, answer) => SubmitOutcome::Completed(job, answer),
    })
}

/// A store for one claim, which also writes the job.
struct SubmissionStore {
    queue: Arc<Inner>,
    job: Arc<PreparedJob>,
    written: Mutex<Option<WrittenJob>>,
}

impl SubmissionStore {
    async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        let Inner { batches, store, .. } = &*self.queue;
        loop {
            if let Some(written) = batches.write(&self.job, Some(ask)).await? {
                *self.written.lock() = Some(written);
                return Ok(Claimed::Won(Grant::first_run(ask, written.fence)));
            }
            // A record that has expired gives way to other parameters; a job that is unfinished
            // doesn't.
            let unfinished = self.queue.unfinished(&ask.identity).await?;
            if let Some(found) = unfinished.filter(|found| found.fingerprint != ask.fingerprint) {
                return Ok(Claimed::Mismatch(Mismatch::local(found.fingerprint)));
            }
            let bind = |query| bind_one(query, &self.job, ask);
            if let Some((answer, rows)) = store.reclaim_with(batches.with(), ask, bind).await? {
                if let Some(row) = rows.first() {
                    *self.written.lock() = Some(read(row)?.1);
                }
                return Ok(answer);
            }
        }
    }
}

impl Store for SubmissionStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(self.claim(claim))
    }

    semel_core::forward_store!(|self| self.queue.store => renew, settle, resolve, read, watch, capabilities);
}
