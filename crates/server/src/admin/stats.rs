//! `GET /admin/v1/stats`: statistics of the store, the engine and the audit trail.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_core::store::Stats;
use serde::Serialize;
use utoipa::ToSchema;

use super::AdminState;
use crate::audit::{CopyStatus, Count};
use crate::operators::Operator;
use crate::web::{
    Failure, Problem401, Problem403, Problem429, format_time, json_response, to_millis,
};

/// Statistics of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsView {
    /// The server's wall clock.
    time: String,
    /// The time since the start of the process.
    uptime_ms: u64,
    /// The store.
    store: StoreView,
    /// The engine of this process.
    engine: EngineView,
    /// The audit trail of this process.
    audit: AuditView,
    /// Event counts since the start of the process.
    counts: Vec<Count>,
}

/// The store.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StoreView {
    /// The kind of store.
    name: String,
    /// Whether the store answered.
    reachable: bool,
    /// The number of records, including expired ones that are not yet removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    records: Option<u64>,
    /// The maximum number of records, if the store is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    capacity: Option<u64>,
    /// Whether records survive a restart.
    durable: bool,
    /// Whether other processes share the records.
    shared: bool,
}

/// The engine.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EngineView {
    /// The number of effects that run in this process.
    running: usize,
    /// The number of callers that wait for a running key.
    waiting: usize,
    /// The circuit breaker: `closed`, `open` or `half_open`.
    breaker: String,
}

/// The audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditView {
    /// The name of the sink.
    sink: String,
    /// The number of entries that wait for the sink.
    waiting: usize,
    /// The number of lost entries since the start.
    lost: u64,
    /// The copies of the trail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copies: Vec<CopyStatus>,
}

impl StoreView {
    pub(super) fn from_state(state: &AdminState, stats: Option<Stats>) -> Self {
        let capabilities = state.semel.store().capabilities();
        Self {
            name: capabilities.name.to_owned(),
            reachable: stats.is_some(),
            records: stats.map(|stats| stats.records),
            capacity: stats.and_then(|stats| stats.capacity),
            durable: capabilities.durable,
            shared: capabilities.shared,
        }
    }
}

impl EngineView {
    pub(super) fn from_state(state: &AdminState) -> Self {
        let engine = state.semel.engine();
        Self {
            running: engine.running(),
            waiting: engine.waiting(),
            breaker: engine.breaker().as_str().to_owned(),
        }
    }
}

impl AuditView {
    pub(super) fn from_state(state: &AdminState) -> Self {
        Self {
            sink: state.trail.sink_name().to_owned(),
            waiting: state.trail.waiting(),
            lost: state.trail.lost(),
            copies: state.trail.copies(),
        }
    }
}

/// Statistics of the store, the engine and the audit trail.
#[utoipa::path(
    get,
    path = "/admin/v1/stats",
    tag = "admin",
    responses((status = 200, description = "The statistics.", body = StatsView), Problem401, Problem403, Problem429),
    security(("admin" = []))
)]
pub(super) async fn stats(
    State(state): State<AdminState>,
    _: Operator,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    // The other statistics are useful even if the store is down.
    let stats = state.semel.store().stats().await.ok();
    let view = StatsView {
        time: format_time(clock.wall()),
        uptime_ms: to_millis(clock.now().since(state.started)),
        store: StoreView::from_state(&state, stats),
        engine: EngineView::from_state(&state),
        audit: AuditView::from_state(&state),
        counts: state.trail.counts(),
    };
    Ok(json_response(StatusCode::OK, &view))
}
