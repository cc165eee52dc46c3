//! Jobs, for operators: listing, inspecting, and dead letters that get another chance.

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use semel_jobs::{JobQuery, JobState, Jobs};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::access::Operator;
use super::changes::Signed;
use crate::api::{
    Failure, Json, P400, P401, P403, P404, P408, P409, P413, P415, P500, P503, Query, answered,
};
use crate::jobs::{JobView, failure, path_id};

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobStateFilter {
    /// It waits for a worker, or for its time.
    Queued,
    /// A worker has it.
    Running,
    /// Done.
    Done,
    /// A dead letter.
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

/// Which jobs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsQuery {
    /// Only those that stand so.
    #[param(inline, nullable = false)]
    state: Option<JobStateFilter>,
    /// Only of this tenant.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    tenant: Option<String>,
    /// Only of this kind.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    kind: Option<String>,
    /// Go on after this job: `next` of the page before.
    #[param(nullable = false, pattern = "^job_[0-9a-f]{32}$")]
    after: Option<String>,
    /// At most so many; 100 unless given.
    #[param(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of jobs, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobsPage {
    /// The jobs.
    jobs: Vec<JobView>,
    /// Where to go on; none at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
    /// How many wait.
    queued: u64,
    /// How many run.
    running: u64,
    /// How many are dead letters.
    dead: u64,
    /// How many files of a bucket can't be read as the job of their place: nobody gets those until they are mended.
    damaged: u64,
    /// The path of one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    damaged_file: Option<String>,
}

impl AdminState {
    fn jobs(&self) -> Result<&Jobs, Failure> {
        self.jobs
            .as_ref()
            .ok_or_else(|| Failure::of("not_found", "there is no queue here; set jobs.enabled"))
    }
}

/// List jobs.
#[utoipa::path(
    get,
    path = "/admin/v1/jobs",
    tag = "admin",
    params(JobsQuery),
    responses(
        (status = 200, description = "A page.", body = JobsPage),
        P400, P401, P403, P404, P500, P503
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
        return Err(Failure::invalid("limit is from 1 to 1000"));
    }
    let query = JobQuery {
        tenant: asked.tenant,
        kind: asked.kind,
        state: asked.state.map(JobState::from),
        after: asked.after.as_deref().map(path_id).transpose()?,
        limit,
    };
    let queue = state.jobs()?.queue();
    let page = queue.list(&query).await.map_err(|error| failure(&error))?;
    let counts = queue.counts().await.map_err(|error| failure(&error))?;
    let page = JobsPage {
        jobs: page.jobs.into_iter().map(JobView::from).collect(),
        next: page.next.map(|id| id.to_string()),
        queued: counts.queued,
        running: counts.running,
        dead: counts.dead,
        damaged: counts.damaged,
        damaged_file: counts.damaged_file,
    };
    Ok(answered(StatusCode::OK, &page))
}

/// Inspect a job.
#[utoipa::path(
    get,
    path = "/admin/v1/jobs/{job_id}",
    tag = "admin",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    responses(
        (status = 200, description = "The job.", body = JobView),
        P400, P401, P403, P404, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn inspect(
    State(state): State<AdminState>,
    _: Operator,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let id = path_id(&id)?;
    let found = state.jobs()?.queue().look(id).await;
    let found = found.map_err(|error| failure(&error))?;
    let job = found.ok_or_else(|| failure(&semel_jobs::Error::NotFound))?;
    Ok(answered(StatusCode::OK, &JobView::from(job)))
}

/// Who retries a dead letter, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryRequest {
    /// Who.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// Why.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// A dead letter that waits again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetryView {
    /// Always true.
    ok: bool,
    /// The same job.
    job_id: String,
    /// Whether what came of it could be written to the audit trail.
    audited: bool,
}

/// Give a dead letter another chance: the same job, the same id, no attempts.
#[utoipa::path(
    post,
    path = "/admin/v1/jobs/{job_id}/retry",
    tag = "admin",
    params(("job_id" = String, Path, description = "The job.", pattern = "^job_[0-9a-f]{32}$")),
    request_body = RetryRequest,
    responses(
        (status = 200, description = "It waits again.", body = RetryView),
        P400, P401, P403, P404, P408, P409, P413, P415, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn retry(
    State(state): State<AdminState>,
    operator: Operator,
    Path(id): Path<String>,
    Json(asked): Json<RetryRequest>,
) -> Result<Response, Failure> {
    let id = path_id(&id)?;
    let jobs = state.jobs()?;
    let signed = Signed {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    let kind = ["admin.job_retry.begun", "admin.job_retry"];
    let more = json!({"job_id": id.to_string()});
    let change = state.begin(kind, &operator, &signed, None, more).await?;
    match jobs.queue().retry(id).await {
        Ok(()) => {
            let audited = state.end(change, json!({"outcome": "done"})).await;
            let view = RetryView {
                ok: true,
                job_id: id.to_string(),
                audited,
            };
            Ok(answered(StatusCode::OK, &view))
        }
        Err(error) => {
            state.end(change, json!({"outcome": error.code()})).await;
            Err(failure(&error))
        }
    }
}
