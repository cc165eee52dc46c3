//! What an operator changes. Every change is written to the audit trail before it is made, and again with what came
//! of it; where the first can't be written, the change isn't made.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_core::engine::{Operated, Unlock};
use semel_core::{Answer, Fence, Identity, Record, Resolution, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::AdminState;
use super::access::Operator;
use super::view::state_at;
use crate::api::{
    AnswerInput, Failure, Id, Json, P400, P401, P403, P404, P408, P409, P413, P415, P422, P500,
    P503, Status, answered, check_text, hex, present, store_failed, whole,
};
use crate::audit::Draft;

/// Who changes something, and why.
pub(super) struct Signed<'a> {
    pub(super) actor: &'a str,
    pub(super) reason: &'a str,
}

impl Signed<'_> {
    pub(super) fn check(&self) -> Result<(), Failure> {
        check_text("actor", self.actor, 128)?;
        check_text("reason", self.reason, 500)
    }
}

/// One change, on its way through the audit trail.
pub(super) struct Change {
    kind: &'static str,
    draft: Draft,
}

impl AdminState {
    /// Writes down what is about to be done.
    pub(super) async fn begin(
        &self,
        kind: [&'static str; 2],
        operator: &Operator,
        signed: &Signed<'_>,
        about: Option<(&Identity, &Record)>,
        more: Value,
    ) -> Result<Change, Failure> {
        signed.check()?;
        let mut detail = Map::new();
        if let Value::Object(more) = more {
            detail.extend(more);
        }
        detail.insert("reason".to_owned(), signed.reason.into());
        // The credential says who acts; what a caller says of it is told beside it.
        if operator.name().is_some_and(|name| name != signed.actor) {
            detail.insert("said_to_be".to_owned(), signed.actor.into());
        }
        if let Some((_, record)) = about {
            detail.insert("before".to_owned(), record.state.as_str().into());
            detail.insert("fence".to_owned(), record.fence.0.into());
        }
        let draft = Draft {
            kind: kind[0],
            place: about.map(|(_, record)| record.namespace.clone()),
            id: about.map(|(identity, _)| hex(identity.as_bytes())),
            actor: Some(operator.name().unwrap_or(signed.actor).to_owned()),
            detail,
        };
        let written = self.trail.record(draft.clone()).await;
        written.map_err(|_| {
            let detail = "the audit trail can't be written to; nothing was changed";
            Failure::of("audit_unavailable", detail)
        })?;
        Ok(Change {
            kind: kind[1],
            draft,
        })
    }

    /// Writes down what came of it; answers whether that could be written.
    pub(super) async fn end(&self, change: Change, outcome: Value) -> bool {
        let mut draft = change.draft;
        draft.kind = change.kind;
        if let Value::Object(outcome) = outcome {
            draft.detail.extend(outcome);
        }
        self.trail.record(draft).await.is_ok()
    }

    async fn finish(
        &self,
        change: Change,
        identity: &Identity,
        operated: Result<Operated, StoreError>,
    ) -> Result<Response, Failure> {
        match operated {
            Ok(Operated::Done { before, state }) => {
                let outcome = json!({"outcome": "done", "before": before.state.as_str(), "after": state.as_str()});
                let audited = self.end(change, outcome).await;
                let view = ChangeView {
                    id: hex(identity.as_bytes()),
                    before: before.state.into(),
                    after: state.into(),
                    fence: before.fence.0,
                    audited,
                };
                Ok(answered(StatusCode::OK, &view))
            }
            Ok(Operated::Absent) => {
                self.end(change, json!({"outcome": "absent"})).await;
                Err(Failure::not_found())
            }
            Ok(Operated::MovedOn(found)) => {
                let state = found.state.as_str();
                self.end(change, json!({"outcome": "moved_on", "after": state}))
                    .await;
                Err(moved_on(state, found.fence))
            }
            Err(error) => {
                self.end(
                    change,
                    json!({"outcome": "store_failed", "kind": error.kind.as_str()}),
                )
                .await;
                Err(store_failed(&error))
            }
        }
    }
}

fn moved_on(state: &str, fence: Fence) -> Failure {
    let detail = format!(
        "the record is {state} under fence {fence}, which this change isn't for; nothing was changed, look again"
    );
    Failure::of("moved_on", detail)
}

/// A change that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeView {
    /// Of the key.
    id: String,
    /// What the record said.
    before: Status,
    /// What it says now; `released` for one that was reset.
    after: Status,
    /// The fence that the change was for.
    fence: u64,
    /// Whether the outcome is in the audit trail. That the change was begun always is.
    audited: bool,
}

/// Where an unlocked record goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnlockTo {
    /// Released under `takeover`, in doubt under `hold`.
    #[default]
    ByPolicy,
    /// Free to claim: the next caller runs it.
    Released,
    /// In doubt, to be resolved.
    InDoubt,
}

/// Takes a lease away from an owner that is gone or stuck.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnlockRequest {
    /// The fence that was looked at.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// Who does this.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// Why.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
    /// Where the record goes.
    #[serde(default)]
    to: UnlockTo,
}

/// Unlock a running record.
///
/// Should the owner live after all, its settlement will be refused, and what it has done stands: after a release the
/// effect may happen twice.
#[utoipa::path(
    post,
    path = "/admin/v1/records/{id}/unlock",
    tag = "admin",
    params(("id" = String, Path, description = "The key's hash.", pattern = "^[0-9a-f]{64}$")),
    request_body = UnlockRequest,
    responses(
        (status = 200, description = "Unlocked.", body = ChangeView),
        P400, P401, P403, P404, P408, P409, P413, P415, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn unlock(
    State(state): State<AdminState>,
    operator: Operator,
    Id(identity): Id,
    Json(asked): Json<UnlockRequest>,
) -> Result<Response, Failure> {
    let signed = Signed {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    signed.check()?;
    let record = state.see(&operator, &identity).await?;
    let about = Some((&identity, &record));
    let kinds = ["admin.unlock.begun", "admin.unlock"];
    let change = state
        .begin(kinds, &operator, &signed, about, json!({}))
        .await?;
    let to = match asked.to {
        UnlockTo::ByPolicy => Unlock::ByPolicy,
        UnlockTo::Released => Unlock::Release,
        UnlockTo::InDoubt => Unlock::Doubt,
    };
    let unlocked = state
        .semel
        .engine()
        .unlock(&identity, Fence(asked.fence), to)
        .await;
    state.finish(change, &identity, unlocked).await
}

/// What became of a run in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It did happen: keep and replay this answer.
    Completed,
    /// It failed for good: keep and replay this failure.
    Failed,
    /// It did not happen: the next caller runs it.
    Released,
}

/// Ends a doubt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveRequest {
    /// The fence of the doubt that was looked at.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// Who does this.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// Why.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
    /// What happened.
    outcome: Verdict,
    /// The answer to keep, with `completed` and `failed`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    answer: Option<AnswerInput>,
}

/// Resolve a record in doubt.
#[utoipa::path(
    post,
    path = "/admin/v1/records/{id}/resolve",
    tag = "admin",
    params(("id" = String, Path, description = "The key's hash.", pattern = "^[0-9a-f]{64}$")),
    request_body = ResolveRequest,
    responses(
        (status = 200, description = "Resolved; the same resolution sent again says so again.", body = ChangeView),
        P400, P401, P403, P404, P408, P409, P413, P415, P422, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn resolve(
    State(state): State<AdminState>,
    operator: Operator,
    Id(identity): Id,
    Json(asked): Json<ResolveRequest>,
) -> Result<Response, Failure> {
    let signed = Signed {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    signed.check()?;
    let resolution = resolution(&state, asked.outcome, asked.answer)?;
    let record = state.see(&operator, &identity).await?;
    let about = Some((&identity, &record));
    let more = json!({"resolution": format!("{:?}", asked.outcome).to_lowercase()});
    let kinds = ["admin.resolve.begun", "admin.resolve"];
    let change = state.begin(kinds, &operator, &signed, about, more).await?;
    let resolved = state
        .semel
        .engine()
        .resolve(&identity, Fence(asked.fence), &resolution)
        .await;
    state.finish(change, &identity, resolved).await
}

fn resolution(
    state: &AdminState,
    outcome: Verdict,
    answer: Option<AnswerInput>,
) -> Result<Resolution, Failure> {
    if outcome == Verdict::Released && answer.is_some() {
        return Err(Failure::refused(
            "an answer is kept with completed and failed only",
        ));
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

/// Makes a key as new.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetRequest {
    /// The fence that was looked at.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// Who does this.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// Why.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// Reset a key: forget its record, whatever it says. The next caller runs the effect again.
#[utoipa::path(
    post,
    path = "/admin/v1/records/{id}/reset",
    tag = "admin",
    params(("id" = String, Path, description = "The key's hash.", pattern = "^[0-9a-f]{64}$")),
    request_body = ResetRequest,
    responses(
        (status = 200, description = "The key is as new.", body = ChangeView),
        P400, P401, P403, P404, P408, P409, P413, P415, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn reset(
    State(state): State<AdminState>,
    operator: Operator,
    Id(identity): Id,
    Json(asked): Json<ResetRequest>,
) -> Result<Response, Failure> {
    let signed = Signed {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    signed.check()?;
    // Where there is none, another may have deleted it: nobody here goes on replaying it.
    let record = state.see(&operator, &identity).await;
    let record = record.inspect_err(|_| state.semel.engine().forget(&identity))?;
    if record.fence != Fence(asked.fence) {
        let now = state
            .semel
            .store()
            .now()
            .await
            .map_err(|error| store_failed(&error))?;
        return Err(moved_on(state_at(&record, now).as_str(), record.fence));
    }
    let about = Some((&identity, &record));
    let kinds = ["admin.reset.begun", "admin.reset"];
    let change = state
        .begin(kinds, &operator, &signed, about, json!({}))
        .await?;
    let reset = state
        .semel
        .engine()
        .reset(state.semel.store(), &identity, Fence(asked.fence))
        .await;
    state.finish(change, &identity, reset).await
}
