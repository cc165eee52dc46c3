//! The jobs API: submit, look up and wait; and lease, heartbeat, complete and fail for workers.
//!
//! It reads key and parameters, calls the queue, and writes the result. `docs/jobs.md` is the
//! guide.

mod lookup;
mod open;
mod quota;
mod submit;
mod wait_slots;
mod workers;

use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use semel_core::{Env, KeyRules, StoreErrorKind};
use semel_http::{Refusal, read_key};
use semel_jobs::{Error, Jobs};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::config::{self, Limits};
use crate::web::{Access, BodyLimits, Failure, method_not_allowed};

pub(crate) use lookup::{JobView, parse_job_id};
pub use open::{Reaper, open};
use wait_slots::WaitSlots;

/// The path prefix of the jobs API.
pub const PATH: &str = "/mesh";

/// The largest accepted request: 1,000 jobs of 16 KiB.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;

/// How long a request's body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait of a call.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The state of the jobs API. Clones share it.
#[derive(Clone, Debug)]
pub struct JobsState {
    jobs: Jobs,
    access: Access,
    key_rules: KeyRules,
    env: Env,
    wait_slots: WaitSlots,
    max_result_bytes: usize,
}

impl JobsState {
    /// The state of an API on `jobs`, for the callers that `access` allows.
    #[must_use]
    pub fn new(jobs: Jobs, access: Access, key_rules: KeyRules, env: Env) -> Self {
        Self {
            jobs,
            access,
            key_rules,
            env,
            wait_slots: WaitSlots::new(&Limits::default()),
            max_result_bytes: config::Jobs::default().max_result_bytes.bytes(),
        }
    }

    /// Sets the limits of waiting calls, and the largest result that the queue keeps.
    #[must_use]
    pub fn with_limits(mut self, limits: &Limits, jobs: &config::Jobs) -> Self {
        self.wait_slots = WaitSlots::new(limits);
        self.max_result_bytes = jobs.max_result_bytes.bytes();
        self
    }
}

impl FromRef<JobsState> for Access {
    fn from_ref(state: &JobsState) -> Self {
        state.access.clone()
    }
}

impl FromRef<JobsState> for BodyLimits {
    fn from_ref(state: &JobsState) -> Self {
        Self {
            max_bytes: MAX_REQUEST_BYTES,
            timeout: BODY_TIMEOUT,
            env: state.env.clone(),
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<JobsState> {
    OpenApiRouter::new()
        .routes(routes!(submit::submit_request))
        .routes(routes!(submit::submit_requests))
        .routes(routes!(lookup::look))
        .routes(routes!(workers::lease))
        .routes(routes!(workers::heartbeat))
        .routes(routes!(workers::complete))
        .routes(routes!(workers::fail))
}

/// The router without a fallback for unknown paths, to merge into a larger one.
pub fn bare_router(state: JobsState) -> Router {
    Router::from(routes())
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}

/// The router of the API.
pub fn router(state: JobsState) -> Router {
    crate::web::with_fallbacks(bare_router(state))
}

/// The problem document of a queue error.
pub(crate) fn job_failure(error: &Error) -> Failure {
    let failure = match error {
        Error::Problem(problem) => Failure::from_problem(problem),
        Error::Store(store) if store.kind == StoreErrorKind::Record => Failure::new(
            error.code(),
            "the job in the store can't be read; a retry won't help until it is repaired",
        ),
        Error::Store(_) => Failure::new(
            error.code(),
            "the store did not answer; retry with the same key",
        ),
        Error::Full { retry_after, .. } => {
            let mut failure = Failure::new(error.code(), error.to_string());
            failure.0.retry_after = Some(*retry_after);
            failure
        }
        Error::Conflict => {
            let mut failure = Failure::new(error.code(), error.to_string());
            // The contract of this API says 409.
            failure.0.status = 409;
            failure
        }
        _ => Failure::new(error.code(), error.to_string()),
    };
    failure.with("ok", false)
}

/// Reads a wait and checks its limit.
fn parse_wait(asked: Option<u64>) -> Result<Duration, Failure> {
    let wait = Duration::from_millis(asked.unwrap_or(0));
    if wait > MAX_WAIT {
        return Err(Failure::invalid("wait_ms must be from 0 to 30000"));
    }
    Ok(wait)
}

/// The key from the body or the header. Two different keys are refused.
fn read_job_key(
    state: &JobsState,
    headers: &http::HeaderMap,
    in_body: Option<&str>,
) -> Result<Option<semel_core::Key>, Failure> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let (line, more) = (lines.next(), lines.next());
    if more.is_some() {
        return Err(Failure::invalid(
            "the request has two Idempotency-Key headers",
        ));
    }
    let in_header = line.map(|line| read_key(line, &state.key_rules));
    let in_header = in_header.transpose()?;
    let in_body = in_body.map(|key| state.key_rules.check(key));
    let in_body = in_body.transpose().map_err(Refusal::from)?;
    match (in_body, in_header) {
        (Some(body), Some(header)) if body != header => {
            let detail = "idempotency_key and the Idempotency-Key header are different";
            Err(Failure::invalid(detail))
        }
        (body, header) => Ok(body.or(header)),
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{Certainty, StoreError};

    use super::*;

    #[test]
    fn unreadable_record_differs_from_an_unavailable_store() {
        let failure_of = |kind| {
            let error = StoreError::new(kind, Certainty::Definite, "a test");
            job_failure(&Error::Store(error)).0
        };
        let unreadable = failure_of(StoreErrorKind::Record);
        assert_eq!(unreadable.code, semel_core::Code::RecordUnreadable);
        assert!(!unreadable.code.is_retryable() && unreadable.detail.contains("won't help"));
        assert!(failure_of(StoreErrorKind::Unavailable).code.is_retryable());
    }
}
