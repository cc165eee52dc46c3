//! What workers do: take jobs, keep them, end them.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_jobs::{Failed, JobState, LeaseAsk, LeaseToken, Leased};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::look::JobPath;
use super::submit::raw;
use super::{JobsState, failure, wait};
use crate::api::{
    Caller, Failure, Json, P400, P401, P403, P404, P408, P409, P413, P415, P429, P500, P503,
    answered, given, present, unhex, whole_or_none,
};

/// The span of a lease, unless a worker says otherwise.
const SPAN_MS: u64 = 30_000;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRequest {
    /// Who asks, for people.
    #[schema(min_length = 1, max_length = 120, pattern = "^[ -~]+$")]
    worker: String,
    /// Which kinds of jobs.
    #[schema(min_items = 1, max_items = 16)]
    kinds: Vec<String>,
    /// The tenant. Left out, it is the token's own.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 120,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// At most so many; 1 unless given.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 1, maximum = 100)]
    max_jobs: Option<u64>,
    /// For how long each is the worker's; 30 s unless given.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 10, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// How long to wait for one; 0 unless given.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 0, maximum = 30_000)]
    wait_ms: Option<u64>,
}

/// Jobs that are the worker's now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedView {
    /// Always true.
    ok: bool,
    /// The jobs; none where there are none.
    jobs: Vec<LeasedJob>,
}

/// A job that is the worker's.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedJob {
    /// The same at every start: pass it on to other systems as their idempotency key.
    job_id: String,
    /// Of its first submission.
    request_id: String,
    /// What is to be done.
    kind: String,
    /// With what.
    #[schema(value_type = serde_json::Value)]
    params: Option<Box<RawValue>>,
    /// The how-manieth start this is.
    attempt: u16,
    /// How often it may be started.
    max_attempts: u16,
    /// Shows that the job is this worker's.
    lease_token: String,
    /// For how long it is.
    lease_ms: u64,
}

impl From<Leased> for LeasedJob {
    fn from(job: Leased) -> Self {
        Self {
            job_id: job.id.to_string(),
            request_id: job.request_id.to_string(),
            kind: job.kind,
            params: raw(&job.params),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            lease_token: format!("{:032x}", job.token.0),
            lease_ms: u64::try_from(job.span.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Take jobs.
#[utoipa::path(
    post,
    path = "/mesh/lease",
    tag = "jobs",
    request_body = LeaseRequest,
    responses(
        (status = 200, description = "The jobs that are yours, if any.", body = LeasedView),
        P400, P401, P403, P408, P413, P415, P429, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn lease(
    State(state): State<JobsState>,
    caller: Caller,
    Json(asked): Json<LeaseRequest>,
) -> Result<Response, Failure> {
    let ask = LeaseAsk {
        tenant: caller.tenant(asked.tenant.as_deref())?,
        kinds: asked.kinds,
        worker: asked.worker,
        most: usize::try_from(asked.max_jobs.unwrap_or(1)).unwrap_or(usize::MAX),
        span: Duration::from_millis(asked.lease_ms.unwrap_or(SPAN_MS)),
    };
    let wait = wait(asked.wait_ms)?;
    let _place = match wait.is_zero() {
        true => None,
        false => Some(state.waiting.enter(&ask.tenant)?),
    };
    let leased = state.jobs.lease(&ask, wait).await;
    let leased = leased.map_err(|error| failure(&error))?;
    let jobs = leased.into_iter().map(LeasedJob::from).collect();
    Ok(answered(StatusCode::OK, &LeasedView { ok: true, jobs }))
}

fn token(text: &str) -> Result<LeaseToken, Failure> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let detail = "lease_token is 32 lower-case hexadecimal digits";
    let bytes = bytes.ok_or_else(|| Failure::invalid(detail))?;
    Ok(LeaseToken(u128::from_be_bytes(bytes)))
}

/// A worker that still works.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatRequest {
    /// As it was given with the job.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    lease_token: String,
    /// For how long the job is to be the worker's from now on; 30 s unless given.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 10, maximum = 86_400_000)]
    lease_ms: Option<u64>,
}

/// The job is still the worker's.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeartbeatView {
    /// Always true.
    ok: bool,
    /// For how long.
    lease_ms: u64,
}

/// Keep a job.
#[utoipa::path(
    post,
    path = "/mesh/jobs/{job_id}/heartbeat",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = HeartbeatRequest,
    responses(
        (status = 200, description = "It is still yours.", body = HeartbeatView),
        P400, P401, P403, P404, P408, P409, P413, P415, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn heartbeat(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Json(asked): Json<HeartbeatRequest>,
) -> Result<Response, Failure> {
    let lease = token(&asked.lease_token)?;
    state.see(&caller, id).await?;
    let lease_ms = asked.lease_ms.unwrap_or(SPAN_MS);
    let kept = state
        .jobs
        .queue()
        .heartbeat(id, lease, Duration::from_millis(lease_ms));
    kept.await.map_err(|error| failure(&error))?;
    Ok(answered(
        StatusCode::OK,
        &HeartbeatView { ok: true, lease_ms },
    ))
}

/// A job that is done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteRequest {
    /// As it was given with the job.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    lease_token: String,
    /// What every later submitter gets: any JSON.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// How a job stands after its worker spoke.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndView {
    /// Always true.
    ok: bool,
    /// `completed`, `failed`, or `in_progress` where it is to be run again.
    status: &'static str,
}

/// A job is done.
#[utoipa::path(
    post,
    path = "/mesh/jobs/{job_id}/complete",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = CompleteRequest,
    responses(
        (status = 200, description = "Kept, for every later submitter.", body = EndView),
        P400, P401, P403, P404, P408, P409, P413, P415, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn complete(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Json(asked): Json<CompleteRequest>,
) -> Result<Response, Failure> {
    let lease = token(&asked.lease_token)?;
    state.see(&caller, id).await?;
    let result = asked.result.map_or_else(
        || bytes::Bytes::from_static(b"null"),
        |result| bytes::Bytes::from(String::from(Box::<str>::from(result))),
    );
    let done = state.jobs.queue().complete(id, lease, result).await;
    done.map_err(|error| failure(&error))?;
    state.jobs.tell_ended(id);
    let status = JobState::Done.status();
    Ok(answered(StatusCode::OK, &EndView { ok: true, status }))
}

/// A job that failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailRequest {
    /// As it was given with the job.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    lease_token: String,
    /// Why, for people; cut off past 2 KiB.
    error: String,
    /// Whether to run it again, if it may be started once more. Yes unless given.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    retryable: Option<bool>,
    /// When; longer after every attempt unless given.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(nullable = false, minimum = 0, maximum = 31_536_000_000u64)]
    delay_ms: Option<u64>,
}

/// A job failed.
#[utoipa::path(
    post,
    path = "/mesh/jobs/{job_id}/fail",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = FailRequest,
    responses(
        (status = 200, description = "It is run again, or a dead letter.", body = EndView),
        P400, P401, P403, P404, P408, P409, P413, P415, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn fail(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Json(asked): Json<FailRequest>,
) -> Result<Response, Failure> {
    let lease = token(&asked.lease_token)?;
    state.see(&caller, id).await?;
    let failed = Failed {
        error: asked.error,
        retryable: asked.retryable.unwrap_or(true),
        delay: asked.delay_ms.map(Duration::from_millis),
    };
    let state_now = state.jobs.queue().fail(id, lease, &failed).await;
    let state_now = state_now.map_err(|error| failure(&error))?;
    if state_now.has_ended() {
        state.jobs.tell_ended(id);
    }
    let status = state_now.status();
    Ok(answered(StatusCode::OK, &EndView { ok: true, status }))
}
