//! `POST /mesh/submit_request`, and many at once.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use semel_jobs::{JobAnswer, NewJob, Submitted};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{JobsState, failure, key_of};
use crate::api::{
    Caller, Failure, Json, P400, P401, P403, P408, P409, P413, P415, P422, P429, P500, P503,
    answered, given, present, whole_or_none,
};

/// The most jobs in one request.
const MOST: usize = 1000;

/// A job to submit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitRequest {
    /// The same for every retry of this submission. Without one, each is a job of its own.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[A-Za-z0-9_.:-]+$"
    )]
    idempotency_key: Option<String>,
    /// What is to be done: workers ask for it by this name.
    #[schema(min_length = 1, max_length = 120, pattern = "^[ -~]+$")]
    kind: String,
    /// With what: any JSON.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    params: Option<Box<RawValue>>,
    /// Who submits.
    #[serde(default)]
    client: Client,
    /// The tenant. Left out, it is the token's own.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 120,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// Where the key lives, if not with the other keys of this kind; `queue` is for all kinds.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 120,
        pattern = "^[ -~]+$"
    )]
    scope: Option<String>,
    /// How long the answer is kept after the job's end, in seconds.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 1, maximum = 315_360_000)]
    idempotency_ttl_sec: Option<u64>,
    /// Not to be started before so long.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 0, maximum = 31_536_000_000u64)]
    delay_ms: Option<u64>,
    /// Higher first; 5 unless given.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 0, maximum = 9)]
    priority: Option<u64>,
    /// How often it may be started.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 1, maximum = 1000)]
    max_attempts: Option<u64>,
}

/// Who submits.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    /// The submitter's name, for limits and for people.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, max_length = 120, pattern = "^[ -~]*$")]
    node_id: Option<String>,
}

impl SubmitRequest {
    fn read(
        self,
        state: &JobsState,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<NewJob, Failure> {
        let params = self.params.map_or_else(
            || bytes::Bytes::from_static(b"null"),
            |params| bytes::Bytes::from(String::from(Box::<str>::from(params))),
        );
        let mut job = NewJob::new(&self.kind, params);
        job.key = key_of(state, headers, self.idempotency_key.as_deref())?;
        job.tenant = caller.tenant(self.tenant.as_deref())?;
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

/// What a submitter is told.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubmitView {
    /// Always true: there is a job.
    ok: bool,
    /// Of the first submission.
    request_id: String,
    /// The job.
    job_id: String,
    /// Whether it was submitted before.
    dedup: bool,
    /// `accepted`, `in_progress`, `completed` or `failed`.
    status: &'static str,
    /// What the worker gave back, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// How long that was, where it isn't kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    result_omitted_bytes: Option<u64>,
    /// Why it failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
}

/// JSON that was checked when it came in.
pub(super) fn raw(body: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(body).ok()
}

impl From<Submitted> for SubmitView {
    fn from(submitted: Submitted) -> Self {
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
            Submitted::Completed(_, JobAnswer::Kept(body)) => view.result = raw(&body),
            Submitted::Completed(_, JobAnswer::Omitted { bytes }) => {
                view.result_omitted_bytes = Some(bytes);
            }
            Submitted::Failed(_, error) => view.error = Some(error),
            Submitted::Accepted(_) | Submitted::InProgress(_) => {}
        }
        view
    }
}

/// Submit a job, or find the one that its key stands for.
#[utoipa::path(
    post,
    path = "/mesh/submit_request",
    tag = "jobs",
    request_body = SubmitRequest,
    responses(
        (status = 200, description = "There is a job: see `status`.", body = SubmitView),
        P400, P401, P403, P408, P409, P413, P415, P422, P429, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn submit_request(
    State(state): State<JobsState>,
    caller: Caller,
    headers: HeaderMap,
    Json(asked): Json<SubmitRequest>,
) -> Result<Response, Failure> {
    let job = asked.read(&state, &caller, &headers)?;
    let mut answers = state.jobs.submit_all(vec![job]).await;
    match answers.pop() {
        Some(Ok(submitted)) => Ok(answered(StatusCode::OK, &SubmitView::from(submitted))),
        Some(Err(error)) => Err(failure(&error)),
        None => Err(Failure::not_found()),
    }
}

/// Several jobs to submit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitMany {
    /// Up to 1,000 of them.
    #[schema(min_items = 1, max_items = 1000)]
    requests: Vec<SubmitRequest>,
}

/// What the submitter of several is told.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ManyView {
    /// Always true: each has an answer of its own.
    ok: bool,
    /// In the order of the requests.
    results: Vec<OneView>,
}

/// An answer, or why there is none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OneView {
    /// There is a job.
    Job(SubmitView),
    /// There is none.
    Problem {
        /// Always false.
        ok: bool,
        /// A stable word for why.
        code: &'static str,
        /// What happened, and what to do.
        detail: String,
        /// Whether the same request may get an answer later.
        retryable: bool,
    },
}

impl From<Failure> for OneView {
    fn from(failure: Failure) -> Self {
        Self::Problem {
            ok: false,
            code: failure.0.row.code,
            detail: failure.0.detail,
            retryable: failure.0.row.retryable,
        }
    }
}

/// Submit several jobs. Each goes the way of a single one.
#[utoipa::path(
    post,
    path = "/mesh/submit_requests",
    tag = "jobs",
    request_body = SubmitMany,
    responses(
        (status = 200, description = "An answer for each.", body = ManyView),
        P400, P401, P403, P408, P413, P415
    ),
    security(("bearer" = []))
)]
pub(super) async fn submit_requests(
    State(state): State<JobsState>,
    caller: Caller,
    Json(asked): Json<SubmitMany>,
) -> Result<Response, Failure> {
    if asked.requests.is_empty() || asked.requests.len() > MOST {
        return Err(Failure::invalid("requests has 1 to 1000 of them"));
    }
    let mut results: Vec<Option<OneView>> = Vec::new();
    let mut jobs = Vec::new();
    for request in asked.requests {
        // A key of the whole request's header would be the same for all of them.
        match request.read(&state, &caller, &HeaderMap::new()) {
            Ok(job) => {
                jobs.push(job);
                results.push(None);
            }
            Err(failure) => results.push(Some(failure.into())),
        }
    }
    let mut answers = state.jobs.submit_all(jobs).await.into_iter();
    let mut told = |result: Option<OneView>| match (result, ()) {
        (Some(problem), ()) => problem,
        (None, ()) => match answers.next() {
            Some(Ok(submitted)) => OneView::Job(submitted.into()),
            Some(Err(error)) => failure(&error).into(),
            None => Failure::not_found().into(),
        },
    };
    let results = results.into_iter().map(&mut told).collect();
    Ok(answered(StatusCode::OK, &ManyView { ok: true, results }))
}
