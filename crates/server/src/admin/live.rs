//! `GET /admin/v1/live`: the last minutes, for the dashboard.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::access::Operator;
use super::upkeep::{AuditView, EngineView, StoreView};
use crate::api::{Failure, P400, P401, P403, Query, answered, millis, time};
use crate::live::{HEADLINE, HotKey, KEPT, Latency, Sample, ShadowScope};

/// How many hot keys are told.
const HOT: usize = 20;

/// The greatest number of a sample: what a browser's numbers hold exactly.
const MOST: u64 = (1 << 53) - 1;

/// Which samples to give.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LiveQuery {
    /// Only those after the one of this number: a watcher asks for what it hasn't seen.
    #[param(nullable = false, minimum = 0, maximum = 9007199254740991_i64)]
    after: Option<u64>,
}

/// The last minutes of this process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LiveView {
    /// The server's wall clock.
    time: String,
    /// Since the start. Where it is less than before, the process is a new one, and its samples begin anew.
    uptime_ms: u64,
    /// Which version this is.
    #[schema(value_type = String)]
    version: &'static str,
    /// How many seconds are kept at most.
    kept_seconds: usize,
    /// One for each second, oldest first.
    samples: Vec<Sample>,
    /// Over how many seconds `latency` goes.
    headline_seconds: usize,
    /// How long requests and store calls took lately.
    latency: Latency,
    /// The keys that came most often, by their hash.
    hot_keys: Vec<HotKey>,
    /// What observe mode would have done since the start, of scopes where that is another thing.
    shadow: Vec<ShadowScope>,
    /// The store.
    store: StoreView,
    /// This process's engine.
    engine: EngineView,
    /// This process's audit trail.
    audit: AuditView,
    /// The queue of jobs, where there is one and it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    jobs: Option<JobCounts>,
    /// Whether there is one.
    has_jobs: bool,
    /// What is taken of the process's limits.
    limits: Vec<LimitView>,
}

/// A limit, and what is taken of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitView {
    /// Which one: a setting of `[limits]`.
    #[schema(value_type = String)]
    name: &'static str,
    /// What is taken now.
    used: usize,
    /// How much may be taken, by all callers together.
    most: usize,
    /// How many were turned away since the start, because there was no more or a caller had its share.
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
        let used = limiter
            .used_with(state.semel.engine().waiting())
            .into_iter();
        let limits = used.map(|(name, used, most)| Self {
            name,
            used,
            most,
            refused: refused(name),
        });
        limits.collect()
    }
}

/// How many jobs there are.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobCounts {
    /// Waiting.
    queued: u64,
    /// With a worker.
    running: u64,
    /// Dead letters.
    dead: u64,
}

impl JobCounts {
    async fn of(state: &AdminState) -> Option<Self> {
        let clock = &*state.semel.engine().env().clock;
        let asked = state.jobs.as_ref()?.queue().counts();
        let counts = state.depth.now(clock, asked).await?;
        Some(Self {
            queued: counts.queued,
            running: counts.running,
            dead: counts.dead,
        })
    }
}

/// The last minutes, second by second: traffic, latency, hot keys, observe mode.
#[utoipa::path(
    get,
    path = "/admin/v1/live",
    tag = "admin",
    params(LiveQuery),
    responses((status = 200, description = "The last minutes.", body = LiveView), P400, P401, P403),
    security(("admin" = []))
)]
pub(super) async fn live(
    State(state): State<AdminState>,
    _: Operator,
    Query(query): Query<LiveQuery>,
) -> Result<Response, Failure> {
    if query.after.is_some_and(|after| after > MOST) {
        return Err(Failure::invalid(format!("after is from 0 to {MOST}")));
    }
    let clock = &state.semel.engine().env().clock;
    let size = state.size.now(&**clock, state.semel.store().stats()).await;
    let view = LiveView {
        time: time(clock.wall()),
        uptime_ms: millis(clock.now().since(state.started)),
        version: env!("CARGO_PKG_VERSION"),
        kept_seconds: KEPT,
        samples: state.live.after(query.after),
        headline_seconds: HEADLINE,
        latency: state.live.latency(),
        hot_keys: state.live.hot(HOT),
        shadow: state.live.shadow(),
        store: StoreView::of(&state, size),
        engine: EngineView::of(&state),
        audit: AuditView::of(&state),
        jobs: JobCounts::of(&state).await,
        has_jobs: state.jobs.is_some(),
        limits: LimitView::all(&state),
    };
    Ok(answered(StatusCode::OK, &view))
}
