//! Erasing an actor, purging what has expired, and how it all stands.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_core::store::Stats;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::AdminState;
use super::access::Operator;
use super::changes::Signed;
use crate::api::{
    Failure, Json, P400, P401, P403, P408, P413, P415, P500, P503, answered, check_text, millis,
    store_failed, time, whole,
};
use crate::audit::words::breaker;
use crate::audit::{Count, Shipping};

/// Makes an actor nameless in the audit trail.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErasureRequest {
    /// Whose name to erase, as given with the claims.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    subject: String,
    /// Who does this.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// Why.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// An erasure that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErasureView {
    /// In how many kept entries the name was replaced, those of copies included.
    entries: u64,
    /// Whether the outcome is in the audit trail.
    audited: bool,
}

/// Erase an actor's name from this server's audit trail.
///
/// The entries stay, without the name. Records are not touched: they don't have the name, and taking one away would
/// let its effect run again.
#[utoipa::path(
    post,
    path = "/admin/v1/erasures",
    tag = "admin",
    request_body = ErasureRequest,
    responses(
        (status = 200, description = "The name is gone from the trail.", body = ErasureView),
        P400, P401, P403, P408, P413, P415, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn erase(
    State(state): State<AdminState>,
    operator: Operator,
    Json(asked): Json<ErasureRequest>,
) -> Result<Response, Failure> {
    check_text("subject", &asked.subject, 128)?;
    let signed = Signed {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    // Whose name it was is not written down again.
    let kinds = ["admin.erase.begun", "admin.erase"];
    let change = state
        .begin(kinds, &operator, &signed, None, json!({}))
        .await?;
    match state.trail.erase(&asked.subject).await {
        Ok(entries) => {
            let audited = state
                .end(change, json!({"outcome": "done", "entries": entries}))
                .await;
            Ok(answered(StatusCode::OK, &ErasureView { entries, audited }))
        }
        Err(_) => {
            state.end(change, json!({"outcome": "failed"})).await;
            let detail = "the audit trail could not be rewritten; ask again";
            Err(Failure::of("audit_unavailable", detail))
        }
    }
}

/// Removes expired records.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeRequest {
    /// Only count them.
    #[serde(default)]
    dry_run: bool,
    /// At most about so many; 10,000 where it isn't said.
    #[serde(default = "ten_thousand", deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    most: u64,
    /// Who does this.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// Why.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

const fn ten_thousand() -> u64 {
    10_000
}

/// What a purge found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PurgeView {
    /// Expired records that were removed; with a dry run, that are there.
    expired: usize,
    /// Whether they are still there.
    dry_run: bool,
}

/// Purge expired records. Live ones are never touched, and an expired one counts as absent already: this makes room.
#[utoipa::path(
    post,
    path = "/admin/v1/purges",
    tag = "admin",
    request_body = PurgeRequest,
    responses(
        (status = 200, description = "Removed, or counted.", body = PurgeView),
        P400, P401, P403, P408, P413, P415, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn purge(
    State(state): State<AdminState>,
    operator: Operator,
    Json(asked): Json<PurgeRequest>,
) -> Result<Response, Failure> {
    let most = usize::try_from(asked.most).ok();
    let most = most.filter(|most| (1..=1_000_000).contains(most));
    let most = most.ok_or_else(|| Failure::invalid("most is from 1 to 1000000"))?;
    let signed = Signed {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    signed.check()?;
    let store = state.semel.store();
    let dry_run = asked.dry_run;
    if dry_run {
        let expired = store
            .expired(most)
            .await
            .map_err(|error| store_failed(&error))?;
        return Ok(answered(StatusCode::OK, &PurgeView { expired, dry_run }));
    }
    let kinds = ["admin.purge.begun", "admin.purge"];
    let change = state
        .begin(kinds, &operator, &signed, None, json!({}))
        .await?;
    match store.sweep(most).await {
        Ok(expired) => {
            state
                .end(change, json!({"outcome": "done", "removed": expired}))
                .await;
            Ok(answered(StatusCode::OK, &PurgeView { expired, dry_run }))
        }
        Err(error) => {
            state
                .end(
                    change,
                    json!({"outcome": "store_failed", "kind": error.kind.as_str()}),
                )
                .await;
            Err(store_failed(&error))
        }
    }
}

/// How it all stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsView {
    /// The server's wall clock.
    time: String,
    /// Since the start.
    uptime_ms: u64,
    /// The store.
    store: StoreView,
    /// This process's engine.
    engine: EngineView,
    /// This process's audit trail.
    audit: AuditView,
    /// How often what happened since the start; a rate is a difference between two answers.
    counts: Vec<Count>,
}

/// The store.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StoreView {
    /// Its kind.
    name: String,
    /// Whether it answered; where it didn't, nothing of it is known.
    reachable: bool,
    /// Records present, expired ones included that nobody has removed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    records: Option<u64>,
    /// The most records it takes, where it is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    capacity: Option<u64>,
    /// Whether records outlive this process.
    durable: bool,
    /// Whether other processes see the same records.
    shared: bool,
}

/// The engine.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EngineView {
    /// Effects that run in this process; those elsewhere are not counted.
    running: usize,
    /// Callers that wait for another's run.
    waiting: usize,
    /// `closed`, `open` or `half_open`.
    breaker: String,
}

/// The audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditView {
    /// Where it goes.
    sink: String,
    /// Entries that wait to be written.
    waiting: usize,
    /// Entries that were left out since the start.
    lost: u64,
    /// Copies of it elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copies: Vec<Shipping>,
}

impl StoreView {
    pub(super) fn of(state: &AdminState, stats: Option<Stats>) -> Self {
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
    pub(super) fn of(state: &AdminState) -> Self {
        let engine = state.semel.engine();
        Self {
            running: engine.running(),
            waiting: engine.waiting(),
            breaker: breaker(engine.breaker()).to_owned(),
        }
    }
}

impl AuditView {
    pub(super) fn of(state: &AdminState) -> Self {
        Self {
            sink: state.trail.sink_name().to_owned(),
            waiting: state.trail.waiting(),
            lost: state.trail.lost(),
            copies: state.trail.copies(),
        }
    }
}

/// Store, engine and audit trail at a glance.
#[utoipa::path(
    get,
    path = "/admin/v1/stats",
    tag = "admin",
    responses((status = 200, description = "How it all stands.", body = StatsView), P401, P403),
    security(("admin" = []))
)]
pub(super) async fn stats(
    State(state): State<AdminState>,
    _: Operator,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    // An answer about the rest is worth more than none when the store is down.
    let stats = state.semel.store().stats().await.ok();
    let view = StatsView {
        time: time(clock.wall()),
        uptime_ms: millis(clock.now().since(state.started)),
        store: StoreView::of(&state, stats),
        engine: EngineView::of(&state),
        audit: AuditView::of(&state),
        counts: state.trail.counts(),
    };
    Ok(answered(StatusCode::OK, &view))
}
