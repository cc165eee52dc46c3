//! Jobs over HTTP: submitting, looking and waiting, and what workers do.
//!
//! A door like any other: it reads key and parameters, hands them to the queue, and writes the answer. `docs/jobs.md` is the
//! guide.

mod look;
mod open;
mod submit;
mod waiting;
mod work;

use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use semel_core::{Env, KeyRules, StoreErrorKind};
use semel_http::{Refusal, read_key};
use semel_jobs::{Error, Jobs};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::{Access, Failure, Intake, wrong_method};
use crate::config::Limits;

pub(crate) use look::{JobView, path_id};
pub use open::{Reaper, open};
use waiting::Waiting;

/// Paths under this one are the queue's.
pub const PATH: &str = "/mesh";

/// The largest request taken: 1,000 jobs of 16 KiB.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;

/// How long a request's body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest that a call waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What the API of jobs is made of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JobsState {
    jobs: Jobs,
    access: Access,
    key_rules: KeyRules,
    env: Env,
    waiting: Waiting,
}

impl JobsState {
    /// The API on `jobs`, for whom `access` lets in.
    #[must_use]
    pub fn new(jobs: Jobs, access: Access, key_rules: KeyRules, env: Env) -> Self {
        Self {
            jobs,
            access,
            key_rules,
            env,
            waiting: Waiting::new(&Limits::default()),
        }
    }

    /// With so many calls that may wait.
    #[must_use]
    pub fn with_limits(mut self, limits: &Limits) -> Self {
        self.waiting = Waiting::new(limits);
        self
    }
}

impl FromRef<JobsState> for Access {
    fn from_ref(state: &JobsState) -> Self {
        state.access.clone()
    }
}

impl FromRef<JobsState> for Intake {
    fn from_ref(state: &JobsState) -> Self {
        Self {
            max_bytes: MAX_REQUEST_BYTES,
            patience: PATIENCE,
            env: state.env.clone(),
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<JobsState> {
    OpenApiRouter::new()
        .routes(routes!(submit::submit_request))
        .routes(routes!(submit::submit_requests))
        .routes(routes!(look::look))
        .routes(routes!(work::lease))
        .routes(routes!(work::heartbeat))
        .routes(routes!(work::complete))
        .routes(routes!(work::fail))
}

/// The API as a router, without an answer for other paths.
pub fn bare_router(state: JobsState) -> Router {
    Router::from(routes())
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

/// The same, with one.
pub fn router(state: JobsState) -> Router {
    crate::api::with_fallbacks(bare_router(state))
}

/// An error of the queue, as the caller is told.
pub(crate) fn failure(error: &Error) -> Failure {
    let failure = match error {
        Error::Problem(problem) => Failure::of_engine(problem),
        Error::Store(said) if said.kind == StoreErrorKind::Record => Failure::of(
            error.code(),
            "what the store has there can't be read; asking again won't help until it is mended",
        ),
        Error::Store(_) => Failure::of(
            error.code(),
            "the store gave no answer; ask again with the same key",
        ),
        Error::Full { retry_after, .. } => {
            let mut failure = Failure::of(error.code(), error.to_string());
            failure.0.retry_after = Some(*retry_after);
            failure
        }
        Error::Conflict => {
            let mut failure = Failure::of(error.code(), error.to_string());
            // As the layout of this API has it, whatever is usual elsewhere.
            failure.0.status = 409;
            failure
        }
        _ => Failure::of(error.code(), error.to_string()),
    };
    failure.with("ok", false)
}

/// A wait within bounds.
fn wait(asked: Option<u64>) -> Result<Duration, Failure> {
    let wait = Duration::from_millis(asked.unwrap_or(0));
    if wait > MAX_WAIT {
        return Err(Failure::invalid("wait_ms is from 0 to 30000"));
    }
    Ok(wait)
}

/// A key that is in the body or in the header, but not two different ones.
fn key_of(
    state: &JobsState,
    headers: &http::HeaderMap,
    in_body: Option<&str>,
) -> Result<Option<semel_core::Key>, Failure> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let (line, more) = (lines.next(), lines.next());
    if more.is_some() {
        return Err(Failure::invalid("the Idempotency-Key is given twice"));
    }
    let in_header = line.map(|line| read_key(line, &state.key_rules));
    let in_header = in_header.transpose()?;
    let in_body = in_body.map(|key| state.key_rules.check(key));
    let in_body = in_body.transpose().map_err(Refusal::from)?;
    match (in_body, in_header) {
        (Some(body), Some(header)) if body != header => {
            let detail = "idempotency_key and the Idempotency-Key header say different keys";
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
    fn what_cant_be_read_is_not_told_as_a_store_that_is_away() {
        let told = |kind| {
            let error = StoreError::new(kind, Certainty::Definite, "a test");
            failure(&Error::Store(error)).0
        };
        let unreadable = told(StoreErrorKind::Record);
        assert_eq!(unreadable.row.code, "idempotency_record_unreadable");
        assert!(!unreadable.row.retryable && unreadable.detail.contains("won't help"));
        assert!(told(StoreErrorKind::Unavailable).row.retryable);
    }
}
