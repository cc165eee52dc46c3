//! `GET /mesh/jobs/{job_id}`: where a job stands, and waiting for its end.

use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use semel_jobs::{Job, JobAnswer, JobId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::submit::raw;
use super::{JobsState, failure, wait};
use crate::api::{
    Caller, Failure, P400, P401, P403, P404, P429, P500, P503, Query, answered, time,
};

/// The job in the address.
pub(crate) struct JobPath(pub(crate) JobId);

/// Reads a job id.
pub(crate) fn path_id(text: &str) -> Result<JobId, Failure> {
    text.parse()
        .map_err(|error: semel_jobs::Error| failure(&error))
}

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path_id(&path.map(|Path(text)| text).unwrap_or_default()).map(Self)
    }
}

/// A job, as it is shown. Never its key, never its parameters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobView {
    /// Always true.
    ok: bool,
    /// The job.
    job_id: String,
    /// Of its first submission.
    request_id: String,
    /// Whose.
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant: String,
    /// What is to be done.
    kind: String,
    /// Who submitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    client: String,
    /// How its key begins.
    #[serde(skip_serializing_if = "String::is_empty")]
    key_hint: String,
    /// `in_progress`, `completed` or `failed`.
    status: &'static str,
    /// `queued`, `running`, `done` or `dead`.
    state: &'static str,
    /// How often it was started.
    attempt: u16,
    /// How often it may be.
    max_attempts: u16,
    /// Higher first.
    priority: u8,
    /// Who has it, or had it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    worker: Option<String>,
    /// How long its parameters are.
    params_bytes: u64,
    /// When it was submitted.
    created_at: String,
    /// When it was last started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    started_at: Option<String>,
    /// Queued: not before. Running: until.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    due_at: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    finished_at: Option<String>,
    /// What the worker gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// How long that was, where it isn't kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    result_omitted_bytes: Option<u64>,
    /// Why it failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        let has_ended = job.state.has_ended();
        let (result, omitted) = match &job.answer {
            Some(JobAnswer::Kept(body)) => (raw(body), None),
            Some(JobAnswer::Omitted { bytes }) => (None, Some(*bytes)),
            None => (None, None),
        };
        Self {
            ok: true,
            job_id: job.id.to_string(),
            request_id: job.request_id.to_string(),
            tenant: job.tenant,
            kind: job.kind,
            client: job.client,
            key_hint: job.hint,
            status: job.state.status(),
            state: job.state.as_str(),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            priority: job.priority,
            worker: job.worker,
            params_bytes: job.params_bytes,
            created_at: time(job.created_at),
            started_at: job.started_at.map(time),
            due_at: (!has_ended).then(|| time(job.due_at)),
            finished_at: has_ended.then(|| time(job.due_at)),
            result,
            result_omitted_bytes: omitted,
            error: job.error,
        }
    }
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitQuery {
    /// Wait so long for the job to end. 0 asks and doesn't wait.
    #[serde(default)]
    #[param(minimum = 0, maximum = 30_000, nullable = false)]
    wait_ms: Option<u64>,
}

impl JobsState {
    /// The job, if the caller may know of it.
    pub(super) async fn see(&self, caller: &Caller, id: JobId) -> Result<Job, Failure> {
        let found = self.jobs.queue().look(id).await;
        let found = found.map_err(|error| failure(&error))?;
        let found = found.filter(|job| caller.may_see(&job.tenant));
        found.ok_or_else(|| failure(&semel_jobs::Error::NotFound))
    }
}

/// Look at a job, or wait for its end.
#[utoipa::path(
    get,
    path = "/mesh/jobs/{job_id}",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$"), WaitQuery),
    responses(
        (status = 200, description = "Where it stands.", body = JobView),
        P400, P401, P403, P404, P429, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn look(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Failure> {
    let wait = wait(query.wait_ms)?;
    let job = state.see(&caller, id).await?;
    if wait.is_zero() || job.state.has_ended() {
        return Ok(answered(StatusCode::OK, &JobView::from(job)));
    }
    let _place = state.waiting.enter(&job.tenant)?;
    let found = state.jobs.wait(id, wait).await;
    let found = found.map_err(|error| failure(&error))?;
    let job = found.ok_or_else(|| failure(&semel_jobs::Error::NotFound))?;
    Ok(answered(StatusCode::OK, &JobView::from(job)))
}
