//! Maintenance: erasing an actor's name, and purging expired records.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::core::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::AdminState;
use super::audited_change::ChangeAuthor;
use crate::api::store_failure;
use crate::operators::Operator;
use crate::web::{
    Failure, Json, Problem400, Problem401, Problem403, Problem408, Problem413, Problem415,
    Problem429, Problem500, Problem503, check_text, deserialize_whole, json_response,
};

/// Erases the name of an actor from the audit trail.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErasureRequest {
    /// The name to erase, as in the claims.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    subject: String,
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the change.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// The result of an erasure.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErasureView {
    /// The number of changed entries, including those in copies.
    entries: u64,
    /// Whether the outcome is in the audit trail.
    audited: bool,
}

/// Erase an actor's name from this server's audit trail.
///
/// The entries stay, without the name. Records do not change: they do not have the name, and
/// removing one would let its effect run again.
#[utoipa::path(
    post,
    path = "/admin/v1/erasures",
    tag = "admin",
    request_body = ErasureRequest,
    responses(
        (status = 200, description = "The name is erased.", body = ErasureView),
        Problem400, Problem401, Problem403, Problem429, Problem408, Problem413, Problem415, Problem500,
        Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn erase(
    State(state): State<AdminState>,
    operator: Operator,
    Json(asked): Json<ErasureRequest>,
) -> Result<Response, Failure> {
    check_text("subject", &asked.subject, 128)?;
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    // The audit entry of the erasure does not repeat the name.
    let kinds = ["admin.erase.begun", "admin.erase"];
    let change = state
        .begin_change(kinds, &operator, &author, None, json!({}))
        .await?;
    match state.trail.erase(&asked.subject).await {
        Ok(entries) => {
            let audited = state
                .end_change(change, json!({"outcome": "done", "entries": entries}))
                .await;
            Ok(json_response(
                StatusCode::OK,
                &ErasureView { entries, audited },
            ))
        }
        Err(_) => {
            state.end_change(change, json!({"outcome": "failed"})).await;
            let detail = "the audit trail could not be rewritten; try again";
            Err(Failure::new(Code::AuditUnavailable, detail))
        }
    }
}

/// Removes expired records.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeRequest {
    /// Whether to count the records without removing them.
    #[serde(default)]
    dry_run: bool,
    /// The approximate maximum number of records to remove. Default: 10,000.
    #[serde(default = "ten_thousand", deserialize_with = "deserialize_whole")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    most: u64,
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the change.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

const fn ten_thousand() -> u64 {
    10_000
}

/// The result of a purge.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PurgeView {
    /// The number of removed records. In a dry run, the number of expired records.
    expired: usize,
    /// Whether this was a dry run.
    dry_run: bool,
}

/// Purge expired records to free space. Other records do not change.
#[utoipa::path(
    post,
    path = "/admin/v1/purges",
    tag = "admin",
    request_body = PurgeRequest,
    responses(
        (status = 200, description = "The expired records are removed or counted.", body = PurgeView),
        Problem400, Problem401, Problem403, Problem429, Problem408, Problem413, Problem415, Problem500,
        Problem503
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
    let most = most.ok_or_else(|| Failure::invalid("most must be from 1 to 1000000"))?;
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    author.check()?;
    let store = state.semel.store();
    let dry_run = asked.dry_run;
    if dry_run {
        let expired = store
            .expired(most)
            .await
            .map_err(|error| store_failure(&error))?;
        return Ok(json_response(
            StatusCode::OK,
            &PurgeView { expired, dry_run },
        ));
    }
    let kinds = ["admin.purge.begun", "admin.purge"];
    let change = state
        .begin_change(kinds, &operator, &author, None, json!({}))
        .await?;
    match store.sweep(most).await {
        Ok(expired) => {
            state
                .end_change(change, json!({"outcome": "done", "removed": expired}))
                .await;
            Ok(json_response(
                StatusCode::OK,
                &PurgeView { expired, dry_run },
            ))
        }
        Err(error) => {
            state
                .end_change(
                    change,
                    json!({"outcome": "store_failed", "kind": error.kind.as_str()}),
                )
                .await;
            Err(store_failure(&error))
        }
    }
}
