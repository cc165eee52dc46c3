//! The history of a key, from the audit trail.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use crate::audit::Entry;
use crate::operators::Operator;
use crate::web::{
    Failure, Problem400, Problem401, Problem403, Problem429, Query, RecordId, hex, json_response,
};

/// The size of a history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// The maximum number of entries, counted from the last one. Default: 100.
    #[param(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The history of a key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryView {
    /// The id of the record.
    id: String,
    /// The entries, oldest first.
    entries: Vec<Entry>,
    /// Whether these are all entries that this server has kept. Other servers have their own
    /// trails.
    complete: bool,
}

/// The history of a key, as far as this server has it.
#[utoipa::path(
    get,
    path = "/admin/v1/records/{id}/history",
    tag = "admin",
    params(
        ("id" = String, Path, description = "The id of the record: a hash of the key.",
         pattern = "^[0-9a-f]{64}$"),
        HistoryQuery
    ),
    responses(
        (status = 200, description = "The entries of the audit trail about the key.", body = HistoryView),
        Problem400, Problem401, Problem403, Problem429
    ),
    security(("admin" = []))
)]
pub(super) async fn history(
    State(state): State<AdminState>,
    operator: Operator,
    RecordId(identity): RecordId,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, Failure> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(Failure::invalid("limit must be from 1 to 1000"));
    }
    let id = hex(identity.as_bytes());
    let mut history = state.trail.history(&id, limit).await;
    history
        .entries
        .retain(|entry| operator.may_see(&entry.tenant));
    let view = HistoryView {
        id,
        entries: history.entries,
        complete: history.complete,
    };
    Ok(json_response(StatusCode::OK, &view))
}
