//! A NATS JetStream stream as the queue, with deduplication in front of it.
//!
//! The record of a key is completed once the stream has acknowledged the message. So a duplicate
//! gets the id of its job, and only the stream's consumers know its result. A submitter that
//! crashes in between leaves a lapsed lease; the next one publishes again under the same
//! `Nats-Msg-Id`, which the stream discards within its duplicate window. Make the window longer
//! than the lease, and the policy's retention longer than the window: within it, the stream
//! discards a new submission under a key whose record has expired.

use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use bytes::Bytes;
use semel_core::engine::{Engine, Problem, Report, Request, Response, Verdict};
use semel_core::policy::Policy;
use semel_core::{Answer, AnswerBody, Fingerprint, Identity, Namespace};

use crate::error::Error;
use crate::job::{JobId, JobRef, NewJob, RequestId, SubmitOutcome};

/// The header that has the job's id.
pub const JOB_ID: &str = "Semel-Job-Id";

/// The header that has the job's kind.
pub const KIND: &str = "Semel-Kind";

/// Submits to a stream. Cheap to clone.
#[derive(Clone)]
pub struct Submitter {
    engine: Engine,
    context: Context,
    environment: Arc<str>,
    subject: Arc<str>,
    policy: Arc<Policy>,
}

impl Submitter {
    /// Publishes to `subject`, which a stream has to listen on.
    #[must_use]
    pub fn new(engine: &Engine, context: Context, environment: &str, subject: &str) -> Self {
        Self {
            engine: engine.clone(),
            context,
            environment: environment.into(),
            subject: subject.into(),
            policy: Arc::default(),
        }
    }

    /// Sets the policy of submissions. Its lease should be shorter than the stream's duplicate
    /// window.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// Publishes the job, or finds the one of its key. Delay, priority and attempts are up to the
    /// stream, and not used.
    ///
    /// # Errors
    /// [`Error`] says whether submitting again can help.
    pub async fn submit(&self, job: NewJob) -> Result<SubmitOutcome, Error> {
        job.check()?;
        let Some(key) = &job.key else {
            let env = self.engine.env();
            let id = JobId::new(env.clock.wall(), &*env.entropy);
            return match self.publish(&job, id, &id.to_string()).await {
                Ok(()) => Ok(SubmitOutcome::Accepted(reference(id))),
                Err(error) => Err(Error::Problem(Problem::Unavailable {
                    source: Some(not_acknowledged(&error)),
                    retry_after: std::time::Duration::from_secs(1),
                })),
            };
        };
        let scope = format!("job:{}", job.scope.as_ref().unwrap_or(&job.kind));
        let namespace = Namespace::new(&self.environment, &job.tenant, &scope);
        let namespace =
            namespace.map_err(|_| Error::Invalid("the tenant or scope can't be used"))?;
        let fingerprint = Fingerprint::builder(self.engine.secret())
            .part(job.kind.as_bytes())
            .json(&job.params)
            .map_err(|error| Error::Params(error.to_string()))?
            .finish();
        let identity = Identity::new(self.engine.secret(), &namespace, key);
        // Other parameters are another message, so that the stream never discards an accepted job.
        let step = format!("nats {}", blake3::hash(fingerprint.as_bytes()));
        let message = identity.derive_key(self.engine.secret(), &step);
        // The same for whoever has to publish it again.
        let digest = blake3::hash(message.as_bytes());
        let id = JobId::from_u128(u128::from_be_bytes(std::array::from_fn(|n| {
            digest.as_bytes()[n]
        })));
        let policy = Arc::clone(&self.policy);
        let request = Request::new(&self.engine, namespace, key, fingerprint, policy);
        let this = self.clone();
        let effect = move |_| async move {
            let published = this.publish(&job, id, &message).await;
            let verdict = match &published {
                Ok(()) => Verdict::Complete(Answer::from_body(id.to_string())),
                // It may be in the stream, which then discards a second message.
                Err(_) => Verdict::Retry,
            };
            Report::new(published.map_err(|error| not_acknowledged(&error)), verdict)
        };
        told(self.engine.execute(request, effect).await, id)
    }

    async fn publish(&self, job: &NewJob, id: JobId, message: &str) -> Result<(), PublishError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", message);
        headers.insert(JOB_ID, id.to_string());
        headers.insert(KIND, job.kind.as_str());
        let params: Bytes = job.params.clone();
        let subject = self.subject.to_string();
        let sent = self.context.publish_with_headers(subject, headers, params);
        sent.await?.await?;
        Ok(())
    }
}

type PublishError = async_nats::jetstream::context::PublishError;

/// Never what was sent.
fn not_acknowledged(error: &PublishError) -> semel_core::StoreError {
    semel_core::StoreError::new(
        semel_core::StoreErrorKind::Unavailable,
        semel_core::Certainty::Unknown,
        format!("the stream did not acknowledge: {:?}", error.kind()),
    )
}

fn reference(id: JobId) -> JobRef {
    JobRef {
        id,
        request_id: RequestId::from_u128(id.as_u128()),
    }
}

fn told(
    response: Response<Result<(), semel_core::StoreError>>,
    id: JobId,
) -> Result<SubmitOutcome, Error> {
    match response {
        Response::Ran(ran) => ran
            .value
            .map(|()| SubmitOutcome::Accepted(reference(id)))
            .map_err(Error::Store),
        Response::Unprotected(value) => value
            .map(|()| SubmitOutcome::Accepted(reference(id)))
            .map_err(Error::Store),
        Response::Replayed(replayed) => {
            let AnswerBody::Kept(body) = &replayed.replay.answer.body else {
                return Err(Error::Superseded);
            };
            let id = std::str::from_utf8(body)
                .ok()
                .and_then(|text| text.parse().ok());
            Ok(SubmitOutcome::InProgress(reference(
                id.ok_or(Error::Superseded)?,
            )))
        }
        Response::Problem(Problem::Mismatch) => Err(Error::Conflict),
        Response::Problem(problem) => Err(problem.into()),
    }
}
