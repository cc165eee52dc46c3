//! `GET /admin/v1/live`: statistics of the last minutes, for the dashboard.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::stats::{AuditView, EngineView, StoreView};
use crate::limits::Limit;
use crate::live::{HEADLINE_SECONDS, HotKey, KEPT_SECONDS, Latency, Sample, ShadowScope};
use crate::operators::Operator;
use crate::web::{
    Failure, Problem400, Problem401, Problem403, Problem429, Query, format_time, json_response,
    to_millis,
};

/// The maximum number of hot keys.
const MAX_HOT_KEYS: usize = 20;

/// The largest sample number: the largest integer that is exact in JavaScript.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The filter of the samples.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LiveQuery {
    /// Only samples after this number.
    #[param(nullable = false, minimum = 0, maximum = 9007199254740991_i64)]
    after: Option<u64>,
}

/// Statistics of the last minutes of this process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LiveView {
    /// The server's wall clock.
    time: String,
    /// The time since the start. If it decreases, the process has restarted, and its samples start
    /// anew.
    uptime_ms: u64,
    /// The version of Semel.
    #[schema(value_type = String)]
    version: &'static str,
    /// The maximum number of kept samples.
    kept_seconds: usize,
    /// One sample for each second, oldest first.
    samples: Vec<Sample>,
    /// The time span of `latency`, in seconds.
    headline_seconds: usize,
    /// The recent latency of requests and store calls.
    latency: Latency,
    /// The most frequent keys.
    hot_keys: Vec<HotKey>,
    /// What enforce mode would have done since the start, for scopes in observe mode with a
    /// difference.
    shadow: Vec<ShadowScope>,
    /// The store.
    store: StoreView,
    /// The engine of this process.
    engine: EngineView,
    /// The audit trail of this process.
    audit: AuditView,
    /// The job queue, if it is enabled and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    jobs: Option<JobCounts>,
    /// Whether the job queue is enabled.
    has_jobs: bool,
    /// The usage of the limits.
    limits: Vec<LimitView>,
}

/// The usage of a limit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitView {
    /// The name of the setting in `[limits]`.
    #[schema(value_type = String)]
    name: &'static str,
    /// The current usage.
    used: usize,
    /// The maximum, for all callers together.
    most: usize,
    /// The number of refusals since the start, by this limit or a caller's share of it.
    refused: u64,
}

impl LimitView {
    fn all(state: &AdminState) -> Vec<Self> {
        let Some(limiter) = &state.limiter else {
            return Vec::new();
        };
        let refused = |name: &str| {
            let of = limiter
                .refusals()
                .filter(|(limit, ..)| limit.as_str() == name);
            of.map(|(.., count)| count).sum()
        };
        let used = limiter.usage(state.semel.engine().waiting()).into_iter();
        let mut limits: Vec<Self> = used
            .map(|(name, used, most)| Self {
                name,
                used,
                most,
                refused: refused(name),
            })
            .collect();
        // Rates and quotas have no common maximum.
        let by_caller = [Limit::Rate, Limit::Keys].map(Limit::as_str);
        limits.extend(by_caller.into_iter().filter_map(|name| {
            let refused = refused(name);
            (refused > 0).then_some(Self {
                name,
                used: 0,
                most: 0,
                refused,
            })
        }));
        limits
    }
}

/// The number of jobs by state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobCounts {
    /// Waiting jobs.
    queued: u64,
    /// Running jobs.
    running: u64,
    /// Dead letters.
    dead: u64,
}

impl JobCounts {
    async fn from_state(state: &AdminState) -> Option<Self> {
        let clock = &*state.semel.engine().env().clock;
        let asked = state.jobs.as_ref()?.queue().counts();
        let counts = state.depth.get(clock, asked).await?;
        Some(Self {
            queued: counts.queued,
            running: counts.running,
            dead: counts.dead,
        })
    }
}

/// Statistics of the last minutes, per second: traffic, latency, hot keys, observe mode.
#[utoipa::path(
    get,
    path = "/admin/v1/live",
    tag = "admin",
    params(LiveQuery),
    responses((status = 200, description = "The statistics.", body = LiveView), Problem400, Problem401, Problem403, Problem429),
    security(("admin" = []))
)]
pub(super) async fn live(
    State(state): State<AdminState>,
    _: Operator,
    Query(query): Query<LiveQuery>,
) -> Result<Response, Failure> {
    if query.after.is_some_and(|after| after > MAX_NUMBER) {
        return Err(Failure::invalid(format!(
            "after must be from 0 to {MAX_NUMBER}"
        )));
    }
    let clock = &state.semel.engine().env().clock;
    let size = state.size.get(&**clock, state.semel.store().stats()).await;
    let view = LiveView {
        time: format_time(clock.wall()),
        uptime_ms: to_millis(clock.now().since(state.started)),
        version: env!("CARGO_PKG_VERSION"),
        kept_seconds: KEPT_SECONDS,
        samples: state.live.samples_after(query.after),
        headline_seconds: HEADLINE_SECONDS,
        latency: state.live.latency(),
        hot_keys: state.live.hot_keys(MAX_HOT_KEYS),
        shadow: state.live.shadow_report(),
        store: StoreView::from_state(&state, size),
        engine: EngineView::from_state(&state),
        audit: AuditView::from_state(&state),
        jobs: JobCounts::from_state(&state).await,
        has_jobs: state.jobs.is_some(),
        limits: LimitView::all(&state),
    };
    Ok(json_response(StatusCode::OK, &view))
}
