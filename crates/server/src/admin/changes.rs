//! The changes that operators make: unlock, resolve and reset.

use axum::extract::State;
use axum::response::Response;
use semel_core::engine::Unlock;
use semel_core::{Answer, Fence, Resolution};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::AdminState;
use super::audited_change::{ChangeAuthor, ChangeView, RecordChange, record_changed};
use crate::api::{AnswerInput, store_failure};
use crate::operators::Operator;
use crate::web::{
    Failure, Json, Problem400, Problem401, Problem403, Problem404, Problem408, Problem409,
    Problem413, Problem415, Problem422, Problem429, Problem500, Problem503, RecordId,
    deserialize_present, deserialize_whole,
};

/// The state of a record after it is unlocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnlockTo {
    /// Released under `takeover`, and in doubt under `hold`.
    #[default]
    ByPolicy,
    /// Free to claim: the next caller runs the operation.
    Released,
    /// In doubt, until an operator resolves it.
    InDoubt,
}

/// Unlocks a record whose owner has crashed or hangs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnlockRequest {
    /// The expected fence of the record.
    #[serde(deserialize_with = "deserialize_whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the change.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
    /// The state after the unlock.
    #[serde(default)]
    to: UnlockTo,
}

/// Unlock a running record.
///
/// If the owner is still alive, its settlement will be refused, but its effect stays. After a
/// release the effect may therefore happen twice.
#[utoipa::path(
    post,
    path = "/admin/v1/records/{id}/unlock",
    tag = "admin",
    params(
        ("id" = String, Path, description = "The id of the record: a hash of the key.",
         pattern = "^[0-9a-f]{64}$")
    ),
    request_body = UnlockRequest,
    responses(
        (status = 200, description = "The record is unlocked.", body = ChangeView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn unlock(
    State(state): State<AdminState>,
    operator: Operator,
    RecordId(identity): RecordId,
    Json(asked): Json<UnlockRequest>,
) -> Result<Response, Failure> {
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    let record = state.find_for_change(&operator, &identity, &author).await?;
    let to = match asked.to {
        UnlockTo::ByPolicy => Unlock::ByPolicy,
        UnlockTo::Released => Unlock::Release,
        UnlockTo::InDoubt => Unlock::Doubt,
    };
    let change = RecordChange {
        operator: &operator,
        author,
        identity: &identity,
        record: &record,
        kinds: ["admin.unlock.begun", "admin.unlock"],
        detail: json!({}),
    };
    let engine = state.semel.engine();
    let unlock = engine.unlock(&identity, Fence(asked.fence), to);
    state.change_record(change, unlock).await
}

/// The outcome of a record in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The operation succeeded: the answer is kept and replayed.
    Completed,
    /// The operation failed permanently: the failure is kept and replayed.
    Failed,
    /// The operation did not happen: the next caller runs it.
    Released,
}

/// Resolves a record in doubt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveRequest {
    /// The expected fence of the record.
    #[serde(deserialize_with = "deserialize_whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the change.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
    /// The outcome.
    outcome: Verdict,
    /// The answer to keep, for `completed` and `failed`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(nullable = false)]
    answer: Option<AnswerInput>,
}

/// Resolve a record in doubt.
#[utoipa::path(
    post,
    path = "/admin/v1/records/{id}/resolve",
    tag = "admin",
    params(
        ("id" = String, Path, description = "The id of the record: a hash of the key.",
         pattern = "^[0-9a-f]{64}$")
    ),
    request_body = ResolveRequest,
    responses(
        (status = 200, description = "The record is resolved. Sending the same resolution again \
            has the same result.", body = ChangeView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem422, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn resolve(
    State(state): State<AdminState>,
    operator: Operator,
    RecordId(identity): RecordId,
    Json(asked): Json<ResolveRequest>,
) -> Result<Response, Failure> {
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    author.check()?;
    let resolution = read_resolution(&state, asked.outcome, asked.answer)?;
    let record = state.find_record(&operator, &identity).await?;
    let change = RecordChange {
        operator: &operator,
        author,
        identity: &identity,
        record: &record,
        kinds: ["admin.resolve.begun", "admin.resolve"],
        detail: json!({"resolution": format!("{:?}", asked.outcome).to_lowercase()}),
    };
    let engine = state.semel.engine();
    let resolve = engine.resolve(&identity, Fence(asked.fence), &resolution);
    state.change_record(change, resolve).await
}

fn read_resolution(
    state: &AdminState,
    outcome: Verdict,
    answer: Option<AnswerInput>,
) -> Result<Resolution, Failure> {
    if outcome == Verdict::Released && answer.is_some() {
        return Err(Failure::refused("only completed and failed have an answer"));
    }
    let most = state.semel.policy().max_answer_bytes;
    let answer = || -> Result<_, Failure> {
        let answer: Answer = answer.unwrap_or_default().into_answer()?;
        Ok(answer.capped(most).into())
    };
    Ok(match outcome {
        Verdict::Completed => Resolution::Complete(answer()?),
        Verdict::Failed => Resolution::Fail(answer()?),
        Verdict::Released => Resolution::Release,
    })
}

/// Resets a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetRequest {
    /// The expected fence of the record.
    #[serde(deserialize_with = "deserialize_whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the change.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// Reset a key: remove its record. The next caller runs the effect again.
#[utoipa::path(
    post,
    path = "/admin/v1/records/{id}/reset",
    tag = "admin",
    params(
        ("id" = String, Path, description = "The id of the record: a hash of the key.",
         pattern = "^[0-9a-f]{64}$")
    ),
    request_body = ResetRequest,
    responses(
        (status = 200, description = "The record is removed.", body = ChangeView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem408, Problem409, Problem413,
        Problem415, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn reset(
    State(state): State<AdminState>,
    operator: Operator,
    RecordId(identity): RecordId,
    Json(asked): Json<ResetRequest>,
) -> Result<Response, Failure> {
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    let record = state.find_for_change(&operator, &identity, &author).await;
    // Another node may have removed the record, so this one drops its cached copy too.
    let record = record.inspect_err(|_| state.semel.engine().forget(&identity))?;
    if record.fence != Fence(asked.fence) {
        let now = state
            .semel
            .store()
            .now()
            .await
            .map_err(|error| store_failure(&error))?;
        return Err(record_changed(record.state_at(now).as_str(), record.fence));
    }
    let change = RecordChange {
        operator: &operator,
        author,
        identity: &identity,
        record: &record,
        kinds: ["admin.reset.begun", "admin.reset"],
        detail: json!({}),
    };
    let (engine, store) = (state.semel.engine(), state.semel.store());
    let reset = engine.reset(store, &identity, Fence(asked.fence));
    state.change_record(change, reset).await
}
