//! `GET /mesh/jobs/{job_id}`: the state of a job, and waiting for its end.

use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use semel_jobs::{Job, JobAnswer, JobId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::submit::parse_raw;
use super::{JobsState, job_failure, parse_wait};
use crate::web::{
    Caller, Failure, Problem400, Problem401, Problem403, Problem404, Problem429, Problem500,
    Problem503, Query, format_time, json_response,
};

/// The job id in the path.
pub(crate) struct JobPath(pub(crate) JobId);

/// Reads a job id.
pub(crate) fn parse_job_id(text: &str) -> Result<JobId, Failure> {
    text.parse()
        .map_err(|error: semel_jobs::Error| job_failure(&error))
}

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        parse_job_id(&path.map(|Path(text)| text).unwrap_or_default()).map(Self)
    }
}

/// A job, without its key and its parameters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobView {
    /// Always true.
    ok: bool,
    /// The id of the job.
    job_id: String,
    /// The id of its first submission.
    request_id: String,
    /// The tenant of the job.
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant: String,
    /// The kind of job.
    kind: String,
    /// The client that submitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    client: String,
    /// The first characters of its key.
    #[serde(skip_serializing_if = "String::is_empty")]
    key_hint: String,
    /// `in_progress`, `completed` or `failed`.
    status: &'static str,
    /// `queued`, `running`, `done` or `dead`.
    state: &'static str,
    /// The number of starts.
    attempt: u16,
    /// The maximum number of starts.
    max_attempts: u16,
    /// The priority. Higher values run first.
    priority: u8,
    /// The current or last worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    worker: Option<String>,
    /// The size of its parameters.
    params_bytes: u64,
    /// When it was submitted.
    created_at: String,
    /// When it was last started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    started_at: Option<String>,
    /// The earliest start of a queued job, or the end of a running job's lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    due_at: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    finished_at: Option<String>,
    /// The result from the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The size of the result, if it was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    result_omitted_bytes: Option<u64>,
    /// The error of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
}

impl JobView {
    /// The job without the result, which may contain personal data.
    pub(crate) fn without_result(self) -> Self {
        Self {
            result: None,
            ..self
        }
    }
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        let has_ended = job.state.has_ended();
        let (result, omitted) = match &job.answer {
            Some(JobAnswer::Kept(body)) => (parse_raw(body), None),
            Some(JobAnswer::Omitted { bytes }) => (None, Some(*bytes)),
            _ => (None, None),
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
            created_at: format_time(job.created_at),
            started_at: job.started_at.map(format_time),
            due_at: (!has_ended).then(|| format_time(job.due_at)),
            finished_at: has_ended.then(|| format_time(job.due_at)),
            result,
            result_omitted_bytes: omitted,
            error: job.error,
        }
    }
}

/// The wait of a request.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitQuery {
    /// How long to wait for the end of the job, in milliseconds. 0 does not wait.
    #[serde(default)]
    #[param(minimum = 0, maximum = 30_000, nullable = false)]
    wait_ms: Option<u64>,
}

impl JobsState {
    /// The job, if it exists and the caller may see it.
    pub(super) async fn find_job(&self, caller: &Caller, id: JobId) -> Result<Job, Failure> {
        let found = self.jobs.queue().look(id).await;
        let found = found.map_err(|error| job_failure(&error))?;
        let found = found.filter(|job| caller.may_see(&job.tenant));
        found.ok_or_else(|| job_failure(&semel_jobs::Error::NotFound))
    }
}

/// Look at a job, or wait for its end.
#[utoipa::path(
    get,
    path = "/mesh/jobs/{job_id}",
    tag = "jobs",
    params(
        ("job_id" = String, Path, description = "The job.",
         pattern = "^job_[0-9a-f]{32}$"),
        WaitQuery
    ),
    responses(
        (status = 200, description = "The state of the job.", body = JobView),
        Problem400, Problem401, Problem403, Problem404, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn look(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Failure> {
    let wait = parse_wait(query.wait_ms)?;
    let job = state.find_job(&caller, id).await?;
    if wait.is_zero() || job.state.has_ended() {
        return Ok(json_response(StatusCode::OK, &JobView::from(job)));
    }
    let _slot = state.wait_slots.acquire(&job.tenant)?;
    let found = state.jobs.wait(id, wait).await;
    let found = found.map_err(|error| job_failure(&error))?;
    let job = found.ok_or_else(|| job_failure(&semel_jobs::Error::NotFound))?;
    Ok(json_response(StatusCode::OK, &JobView::from(job)))
}
