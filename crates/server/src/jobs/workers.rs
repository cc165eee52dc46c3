//! The calls of workers: lease, heartbeat, complete and fail.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_jobs::{JobFailure, JobLease, JobState, LeaseOptions, LeaseToken};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::lookup::JobPath;
use super::submit::parse_raw;
use super::{JobsState, job_failure, parse_wait};
use crate::web::{
    Caller, Failure, Json, Problem400, Problem401, Problem403, Problem404, Problem408, Problem409,
    Problem413, Problem415, Problem429, Problem500, Problem503, deserialize_nullable,
    deserialize_optional_whole, deserialize_present, json_response, unhex,
};

/// The default duration of a lease.
const DEFAULT_LEASE_MS: u64 = 30_000;

/// A worker's request for jobs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRequest {
    /// The name of the worker, for people.
    #[schema(min_length = 1, max_length = 120, pattern = "^[ -~]+$")]
    worker: String,
    /// The kinds of jobs to lease.
    #[schema(min_items = 1, max_items = 16)]
    kinds: Vec<String>,
    /// The tenant. Default: the tenant of the token.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 120,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// The maximum number of jobs. Default: 1.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 100)]
    max_jobs: Option<u64>,
    /// The duration of the leases. Default: 30 s.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 10, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// How long to wait for a job. Default: 0.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 0, maximum = 30_000)]
    wait_ms: Option<u64>,
}

/// The leased jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedView {
    /// Always true.
    ok: bool,
    /// The jobs; empty if none is due.
    jobs: Vec<LeasedJob>,
}

/// A leased job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedJob {
    /// The id of the job. It is the same at every start, so it can be the idempotency key for other
    /// systems.
    job_id: String,
    /// The id of its first submission.
    request_id: String,
    /// The kind of job.
    kind: String,
    /// The parameters of the job.
    #[schema(value_type = serde_json::Value)]
    params: Option<Box<RawValue>>,
    /// The 1-based number of this start.
    attempt: u16,
    /// The maximum number of starts.
    max_attempts: u16,
    /// The token of the lease.
    lease_token: String,
    /// The duration of the lease.
    lease_ms: u64,
}

impl From<JobLease> for LeasedJob {
    fn from(job: JobLease) -> Self {
        Self {
            job_id: job.id.to_string(),
            request_id: job.request_id.to_string(),
            kind: job.kind,
            params: parse_raw(&job.params),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            lease_token: format!("{:032x}", job.token.0),
            lease_ms: u64::try_from(job.span.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Lease jobs.
#[utoipa::path(
    post,
    path = "/mesh/lease",
    tag = "jobs",
    request_body = LeaseRequest,
    responses(
        (status = 200, description = "The leased jobs, if any.", body = LeasedView),
        Problem400, Problem401, Problem403, Problem408, Problem413, Problem415, Problem429,
        Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn lease(
    State(state): State<JobsState>,
    caller: Caller,
    Json(asked): Json<LeaseRequest>,
) -> Result<Response, Failure> {
    let kinds: Vec<&str> = asked.kinds.iter().map(String::as_str).collect();
    let ask = LeaseOptions::new(&asked.worker, &kinds)
        .with_tenant(caller.resolve_tenant(asked.tenant.as_deref())?)
        .with_most(usize::try_from(asked.max_jobs.unwrap_or(1)).unwrap_or(usize::MAX))
        .with_span(Duration::from_millis(
            asked.lease_ms.unwrap_or(DEFAULT_LEASE_MS),
        ));
    let wait = parse_wait(asked.wait_ms)?;
    let _slot = match wait.is_zero() {
        true => None,
        false => Some(state.wait_slots.acquire(&ask.tenant)?),
    };
    let leased = state.jobs.lease(&ask, wait).await;
    let leased = leased.map_err(|error| job_failure(&error))?;
    let jobs = leased.into_iter().map(LeasedJob::from).collect();
    Ok(json_response(
        StatusCode::OK,
        &LeasedView { ok: true, jobs },
    ))
}

fn parse_lease_token(text: &str) -> Result<LeaseToken, Failure> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let detail = "lease_token must be 32 lower-case hexadecimal digits";
    let bytes = bytes.ok_or_else(|| Failure::invalid(detail))?;
    Ok(LeaseToken(u128::from_be_bytes(bytes)))
}

/// Renews the lease of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatRequest {
    /// The lease token of the job.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    lease_token: String,
    /// The duration of the lease from now on. Default: 30 s.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 10, maximum = 86_400_000)]
    lease_ms: Option<u64>,
}

/// The renewed lease.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeartbeatView {
    /// Always true.
    ok: bool,
    /// The duration of the lease.
    lease_ms: u64,
}

/// Renew the lease of a job.
#[utoipa::path(
    post,
    path = "/mesh/jobs/{job_id}/heartbeat",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = HeartbeatRequest,
    responses(
        (status = 200, description = "The lease is renewed.", body = HeartbeatView),
        Problem400, Problem401, Problem403, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn heartbeat(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Json(asked): Json<HeartbeatRequest>,
) -> Result<Response, Failure> {
    let lease = parse_lease_token(&asked.lease_token)?;
    state.find_job(&caller, id).await?;
    let lease_ms = asked.lease_ms.unwrap_or(DEFAULT_LEASE_MS);
    let kept = state
        .jobs
        .queue()
        .heartbeat(id, lease, Duration::from_millis(lease_ms));
    kept.await.map_err(|error| job_failure(&error))?;
    Ok(json_response(
        StatusCode::OK,
        &HeartbeatView { ok: true, lease_ms },
    ))
}

/// Completes a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteRequest {
    /// The lease token of the job.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    lease_token: String,
    /// The result for all later submissions, as any JSON.
    #[serde(default, deserialize_with = "deserialize_nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// The state of a job after its worker ended it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndView {
    /// Always true.
    ok: bool,
    /// `completed`, `failed`, or `in_progress` if the job runs again.
    status: &'static str,
}

/// Complete a job.
#[utoipa::path(
    post,
    path = "/mesh/jobs/{job_id}/complete",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = CompleteRequest,
    responses(
        (status = 200, description = "The result is kept for later submissions.", body = EndView),
        Problem400, Problem401, Problem403, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn complete(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Json(asked): Json<CompleteRequest>,
) -> Result<Response, Failure> {
    let lease = parse_lease_token(&asked.lease_token)?;
    let job = state.find_job(&caller, id).await?;
    let result = asked.result.map_or_else(
        || bytes::Bytes::from_static(b"null"),
        |result| bytes::Bytes::from(String::from(Box::<str>::from(result))),
    );
    let done = state.complete_and_count(&caller, &job, lease, result).await;
    done.map_err(|error| job_failure(&error))?;
    state.jobs.notify_ended(id);
    let status = JobState::Done.status();
    Ok(json_response(StatusCode::OK, &EndView { ok: true, status }))
}

/// Reports the failure of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailRequest {
    /// The lease token of the job.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    lease_token: String,
    /// The error, for people. It is cut off after 2 KiB.
    error: String,
    /// Whether to run the job again, if it has starts left. Default: true.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(nullable = false)]
    retryable: Option<bool>,
    /// The delay before the next start. Default: it grows with every attempt.
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    #[schema(nullable = false, minimum = 0, maximum = 31_536_000_000u64)]
    delay_ms: Option<u64>,
}

/// Report the failure of a job.
#[utoipa::path(
    post,
    path = "/mesh/jobs/{job_id}/fail",
    tag = "jobs",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = FailRequest,
    responses(
        (status = 200, description = "The job runs again, or is a dead letter.", body = EndView),
        Problem400, Problem401, Problem403, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn fail(
    State(state): State<JobsState>,
    caller: Caller,
    JobPath(id): JobPath,
    Json(asked): Json<FailRequest>,
) -> Result<Response, Failure> {
    let lease = parse_lease_token(&asked.lease_token)?;
    state.find_job(&caller, id).await?;
    let failed = match asked.retryable {
        Some(false) => JobFailure::for_good(&asked.error),
        _ => JobFailure::again(&asked.error),
    };
    let failed = failed.with_delay(asked.delay_ms.map(Duration::from_millis));
    let state_now = state.jobs.queue().fail(id, lease, &failed).await;
    let state_now = state_now.map_err(|error| job_failure(&error))?;
    if state_now.has_ended() {
        state.jobs.notify_ended(id);
    }
    let status = state_now.status();
    Ok(json_response(StatusCode::OK, &EndView { ok: true, status }))
}
