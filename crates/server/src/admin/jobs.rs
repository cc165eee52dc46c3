//! Jobs for operators: listing, inspecting, and retrying dead letters.

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use semel::core::Code;
use semel_jobs::{JobQuery, JobState, Jobs};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::audited_change::ChangeAuthor;
use crate::audit::Draft;
use crate::jobs::{JobView, job_failure, parse_job_id};
use crate::operators::{Operator, Role};
use crate::web::{
    Failure, Json, Problem400, Problem401, Problem403, Problem404, Problem408, Problem409,
    Problem413, Problem415, Problem429, Problem500, Problem503, Query, json_response,
};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobStateFilter {
    /// The job waits for a worker or for its due time.
    Queued,
    /// A worker has the job.
    Running,
    /// The job is done.
    Done,
    /// The job is a dead letter.
    Dead,
}

impl From<JobStateFilter> for JobState {
    fn from(filter: JobStateFilter) -> Self {
        match filter {
            JobStateFilter::Queued => Self::Queued,
            JobStateFilter::Running => Self::Running,
            JobStateFilter::Done => Self::Done,
            JobStateFilter::Dead => Self::Dead,
        }
    }
}

/// The filter of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsQuery {
    /// Only jobs in this state.
    #[param(inline, nullable = false)]
    state: Option<JobStateFilter>,
    /// Only jobs of this tenant.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    tenant: Option<String>,
    /// Only jobs of this kind.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    kind: Option<String>,
    /// The `next` of the previous page.
    #[param(nullable = false, pattern = "^job_[0-9a-f]{32}$")]
    after: Option<String>,
    /// The maximum number of jobs. Default: 100.
    #[param(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of jobs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobsPage {
    /// The jobs.
    jobs: Vec<JobView>,
    /// The last job of this page, if there is a next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
    /// The number of waiting jobs.
    queued: u64,
    /// The number of running jobs.
    running: u64,
    /// The number of dead letters.
    dead: u64,
    /// The number of unreadable job files in a bucket. Workers do not get these jobs.
    damaged: u64,
    /// The path of one unreadable file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    damaged_file: Option<String>,
}

impl AdminState {
    fn require_jobs(&self) -> Result<&Jobs, Failure> {
        self.jobs.as_ref().ok_or_else(|| {
            Failure::new(
                Code::NotFound,
                "the job queue is disabled; set jobs.enabled",
            )
        })
    }
}

/// List jobs.
#[utoipa::path(
    get,
    path = "/admin/v1/jobs",
    tag = "admin",
    params(JobsQuery),
    responses(
        (status = 200, description = "A page of jobs.", body = JobsPage),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    _: Operator,
    Query(asked): Query<JobsQuery>,
) -> Result<Response, Failure> {
    let limit = asked.limit.unwrap_or(100);
    if limit == 0 || limit > 1000 {
        return Err(Failure::invalid("limit must be from 1 to 1000"));
    }
    let query = JobQuery::default()
        .with_tenant(asked.tenant)
        .with_kind(asked.kind)
        .with_state(asked.state.map(JobState::from))
        .with_after(asked.after.as_deref().map(parse_job_id).transpose()?)
        .with_limit(limit);
    let queue = state.require_jobs()?.queue();
    let page = queue
        .list(&query)
        .await
        .map_err(|error| job_failure(&error))?;
    let counts = queue.counts().await.map_err(|error| job_failure(&error))?;
    let page = JobsPage {
        jobs: page
            .jobs
            .into_iter()
            .map(|job| JobView::from(job).without_result())
            .collect(),
        next: page.next.map(|id| id.to_string()),
        queued: counts.queued,
        running: counts.running,
        dead: counts.dead,
        damaged: counts.damaged,
        damaged_file: counts.damaged_file,
    };
    Ok(json_response(StatusCode::OK, &page))
}

/// The detail of a job.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InspectJobQuery {
    /// Whether to include the result, which may contain personal data.
    #[serde(default)]
    #[param(nullable = false)]
    result: bool,
}

/// Inspect a job.
#[utoipa::path(
    get,
    path = "/admin/v1/jobs/{job_id}",
    tag = "admin",
    params(
        ("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$"),
        InspectJobQuery
    ),
    responses(
        (status = 200, description = "The job.", body = JobView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn inspect(
    State(state): State<AdminState>,
    operator: Operator,
    Path(id): Path<String>,
    Query(query): Query<InspectJobQuery>,
) -> Result<Response, Failure> {
    let id = parse_job_id(&id)?;
    if query.result {
        operator.require_role(Role::Operate)?;
    }
    let found = state.require_jobs()?.queue().look(id).await;
    let found = found.map_err(|error| job_failure(&error))?;
    let job = found.ok_or_else(|| job_failure(&semel_jobs::Error::NotFound))?;
    let view = JobView::from(job);
    if !query.result {
        return Ok(json_response(StatusCode::OK, &view.without_result()));
    }
    let job = (String::from("job_id"), json!(id.to_string()));
    let reading = Draft {
        detail: [job].into_iter().collect(),
        ..Draft::default()
    };
    state.audit_reading(&operator, reading).await?;
    Ok(json_response(StatusCode::OK, &view))
}

/// The author of a retry, and its reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryRequest {
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the retry.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// A dead letter that is queued again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetryView {
    /// Always true.
    ok: bool,
    /// The job.
    job_id: String,
    /// Whether the outcome is in the audit trail.
    audited: bool,
}

/// Retry a dead letter. The job keeps its id, and its attempts start anew.
#[utoipa::path(
    post,
    path = "/admin/v1/jobs/{job_id}/retry",
    tag = "admin",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = RetryRequest,
    responses(
        (status = 200, description = "The job is queued again.", body = RetryView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn retry(
    State(state): State<AdminState>,
    operator: Operator,
    Path(id): Path<String>,
    Json(asked): Json<RetryRequest>,
) -> Result<Response, Failure> {
    let id = parse_job_id(&id)?;
    let jobs = state.require_jobs()?;
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    let kind = ["admin.job_retry.begun", "admin.job_retry"];
    let more = json!({"job_id": id.to_string()});
    let change = state
        .begin_change(kind, &operator, &author, None, more)
        .await?;
    match jobs.queue().retry(id).await {
        Ok(()) => {
            let audited = state.end_change(change, json!({"outcome": "done"})).await;
            let view = RetryView {
                ok: true,
                job_id: id.to_string(),
                audited,
            };
            Ok(json_response(StatusCode::OK, &view))
        }
        Err(error) => {
            state
                .end_change(change, json!({"outcome": error.code().as_str()}))
                .await;
            Err(job_failure(&error))
        }
    }
}
