//! `POST /mesh/submit_request` and `POST /mesh/submit_requests`: submitting jobs.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use semel_jobs::{JobAnswer, NewJob, SubmitOutcome};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{JobsState, job_failure, read_job_key};
use crate::web::{
    Caller, Failure, Json, Problem400, Problem401, Problem403, Problem408, Problem409, Problem413,
    Problem415, Problem422, Problem429, Problem500, Problem503, deserialize_nullable,
    deserialize_optional_whole, deserialize_present, json_response, refuse_own_scope,
};

/// The maximum number of jobs in one request.
const MAX_JOBS: usize = 1000;

/// A job to submit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitRequest {
    /// The idempotency key, which is the same for every retry. Without it, each submission is a new
    /// job.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[A-Za-z0-9_.:-]+$"
    )]
    idempotency_key: Option<String>,
    /// The kind of job, by which workers lease it.
    #[schema(min_length = 1, max_length = 120, pattern = "^[ -~]+$")]
    kind: String,
    /// The parameters of the job, as any JSON.
    #[serde(default, deserialize_with = "deserialize_nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    params: Option<Box<RawValue>>,
    /// The submitting client.
    #[serde(default)]
    client: Client,
    /// The tenant. Default: the tenant of the token.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 120,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// The scope of the key. Default: the kind of job. `queue` is shared by all kinds.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 120,
        pattern = "^[ -~]+$"
    )]
    scope: Option<String>,
    /// How long to keep the result after the end of the job, in seconds.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 315_360_000)]
    idempotency_ttl_sec: Option<u64>,
    /// The minimum delay before the start, in milliseconds.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 0, maximum = 31_536_000_000u64)]
    delay_ms: Option<u64>,
    /// The priority. Higher values run first. Default: 5.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 0, maximum = 9)]
    priority: Option<u64>,
    /// The maximum number of starts.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 1000)]
    max_attempts: Option<u64>,
}

/// The submitting client.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    /// The name of the client, for limits and for people.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(nullable = false, max_length = 120, pattern = "^[ -~]*$")]
    node_id: Option<String>,
}

impl SubmitRequest {
    fn into_job(
        self,
        state: &JobsState,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<NewJob, Failure> {
        let params = self.params.map_or_else(
            || bytes::Bytes::from_static(b"null"),
            |params| bytes::Bytes::from(String::from(Box::<str>::from(params))),
        );
        refuse_own_scope(self.scope.as_deref().unwrap_or(&self.kind))?;
        let mut job = NewJob::new(&self.kind, params);
        job.key = read_job_key(state, headers, self.idempotency_key.as_deref())?;
        job.tenant = caller.resolve_tenant(self.tenant.as_deref())?;
        job.scope = self.scope;
        job.client = self.client.node_id.unwrap_or_default();
        job.retention = self.idempotency_ttl_sec.map(Duration::from_secs);
        job.delay = Duration::from_millis(self.delay_ms.unwrap_or(0));
        job.priority = u8::try_from(self.priority.unwrap_or(5)).unwrap_or(u8::MAX);
        job.max_attempts = self
            .max_attempts
            .map(|most| u16::try_from(most).unwrap_or(u16::MAX));
        Ok(job)
    }
}

/// The result of a submission.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubmitView {
    /// Always true.
    ok: bool,
    /// The id of the first submission.
    request_id: String,
    /// The id of the job.
    job_id: String,
    /// Whether the job was submitted before.
    dedup: bool,
    /// `accepted`, `in_progress`, `completed` or `failed`.
    status: &'static str,
    /// The result from the worker, once the job is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The size of the result, if it was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    result_omitted_bytes: Option<u64>,
    /// The error of a permanent failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
}

/// Reads JSON that was validated on submission.
pub(super) fn parse_raw(body: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(body).ok()
}

impl From<SubmitOutcome> for SubmitView {
    fn from(submitted: SubmitOutcome) -> Self {
        let job = submitted.job();
        let mut view = Self {
            ok: true,
            request_id: job.request_id.to_string(),
            job_id: job.id.to_string(),
            dedup: submitted.is_duplicate(),
            status: submitted.status(),
            result: None,
            result_omitted_bytes: None,
            error: None,
        };
        match submitted {
            SubmitOutcome::Completed(_, JobAnswer::Kept(body)) => view.result = parse_raw(&body),
            SubmitOutcome::Completed(_, JobAnswer::Omitted { bytes }) => {
                view.result_omitted_bytes = Some(bytes);
            }
            SubmitOutcome::Failed(_, error) => view.error = Some(error),
            _ => {}
        }
        view
    }
}

/// Submit a job, or find the earlier job with the same key.
#[utoipa::path(
    post,
    path = "/mesh/submit_request",
    tag = "jobs",
    request_body = SubmitRequest,
    responses(
        (status = 200, description = "The new or earlier job: see `status`.", body = SubmitView),
        Problem400, Problem401, Problem403, Problem408, Problem409, Problem413, Problem415,
        Problem422, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn submit_request(
    State(state): State<JobsState>,
    caller: Caller,
    headers: HeaderMap,
    Json(asked): Json<SubmitRequest>,
) -> Result<Response, Failure> {
    let job = asked.into_job(&state, &caller, &headers)?;
    let mut answers = state.submit_within_quota(&caller, vec![job]).await;
    match answers.pop() {
        Some(Ok(submitted)) => Ok(json_response(StatusCode::OK, &SubmitView::from(submitted))),
        Some(Err(error)) => Err(job_failure(&error)),
        None => Err(Failure::not_found()),
    }
}

/// Several jobs to submit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitMany {
    /// The jobs.
    #[schema(min_items = 1, max_items = 1000)]
    requests: Vec<SubmitRequest>,
}

/// The results of several submissions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ManyView {
    /// Always true. Each job has its own result.
    ok: bool,
    /// The results, in the order of the requests.
    results: Vec<OneView>,
}

/// The result of one submission.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OneView {
    /// The new or earlier job.
    Job(SubmitView),
    /// The submission failed.
    Problem {
        /// Always false.
        ok: bool,
        /// The stable error code.
        code: &'static str,
        /// What happened, and what to do.
        detail: String,
        /// Whether the same request can succeed later.
        retryable: bool,
    },
}

impl From<Failure> for OneView {
    fn from(failure: Failure) -> Self {
        Self::Problem {
            ok: false,
            code: failure.0.code.as_str(),
            detail: failure.0.detail,
            retryable: failure.0.code.is_retryable(),
        }
    }
}

/// Submit several jobs. Each is handled like a single submission.
#[utoipa::path(
    post,
    path = "/mesh/submit_requests",
    tag = "jobs",
    request_body = SubmitMany,
    responses(
        (status = 200, description = "A result for each job.", body = ManyView),
        Problem400, Problem401, Problem403, Problem408, Problem413, Problem415, Problem429
    ),
    security(("bearer" = []))
)]
pub(super) async fn submit_requests(
    State(state): State<JobsState>,
    caller: Caller,
    Json(asked): Json<SubmitMany>,
) -> Result<Response, Failure> {
    if asked.requests.is_empty() || asked.requests.len() > MAX_JOBS {
        return Err(Failure::invalid("requests must have 1 to 1000 jobs"));
    }
    let mut results: Vec<Option<OneView>> = Vec::new();
    let mut jobs = Vec::new();
    for request in asked.requests {
        // A key in the header would apply to all jobs.
        match request.into_job(&state, &caller, &HeaderMap::new()) {
            Ok(job) => {
                jobs.push(job);
                results.push(None);
            }
            Err(failure) => results.push(Some(failure.into())),
        }
    }
    let mut answers = state.submit_within_quota(&caller, jobs).await.into_iter();
    let mut complete = |result: Option<OneView>| match (result, ()) {
        (Some(problem), ()) => problem,
        (None, ()) => match answers.next() {
            Some(Ok(submitted)) => OneView::Job(submitted.into()),
            Some(Err(error)) => job_failure(&error).into(),
            None => Failure::not_found().into(),
        },
    };
    let results = results.into_iter().map(&mut complete).collect();
    Ok(json_response(
        StatusCode::OK,
        &ManyView { ok: true, results },
    ))
}
