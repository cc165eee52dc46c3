//! Erasing stored responses: of a tenant, or of one subject.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::DataSubject;
use semel::encrypted::DataOwner;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::AdminState;
use super::audited_change::ChangeAuthor;
use crate::api::store_failure;
use crate::operators::Operator;
use crate::web::{
    Failure, Json, Problem400, Problem401, Problem403, Problem408, Problem413, Problem415,
    Problem422, Problem429, Problem500, Problem503, deserialize_present, json_response,
};

/// Erases the stored responses and checkpoints of a tenant, or of one subject.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataErasureRequest {
    /// The tenant; empty if there is only one.
    #[schema(max_length = 128, pattern = "^[ -~]*$")]
    tenant: String,
    /// The subject, as requests name it. Without one, the whole tenant is erased, with its
    /// subjects.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
    )]
    subject: Option<String>,
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    actor: String,
    /// The reason for the change.
    #[schema(min_length = 1, max_length = 500, pattern = "^[ -~]+$")]
    reason: String,
}

/// The result of an erasure.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DataErasureView {
    /// The number of keys that were destroyed. 0 if there were none, or an earlier erasure has
    /// destroyed them.
    destroyed: u32,
    /// The number of keys that earlier erasures have destroyed.
    before: u32,
    /// A keyed digest of tenant and subject, as in the audit trail.
    digest: String,
    /// Whether the outcome is in the audit trail.
    audited: bool,
}

/// Erase the stored responses and checkpoints of a tenant or a subject.
///
/// Their encryption keys are destroyed, so that nobody can read what they encrypted. The records
/// stay, so that no effect runs again: a request with such a key gets `idempotency_answer_erased`.
#[utoipa::path(
    post,
    path = "/admin/v1/data-erasures",
    tag = "admin",
    request_body = DataErasureRequest,
    responses(
        (status = 200, description = "The keys are destroyed.", body = DataErasureView),
        Problem400, Problem401, Problem403, Problem429, Problem408, Problem413, Problem415, Problem422,
        Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn erase(
    State(state): State<AdminState>,
    operator: Operator,
    Json(asked): Json<DataErasureRequest>,
) -> Result<Response, Failure> {
    let author = ChangeAuthor {
        actor: &asked.actor,
        reason: &asked.reason,
    };
    author.check()?;
    let subject = asked.subject.as_deref().map(DataSubject::new).transpose();
    let subject = subject.map_err(|error| Failure::invalid(error.to_string()))?;
    let environment = state.semel.environment();
    if let Err(error) = semel::core::Namespace::new(environment, &asked.tenant, "any") {
        return Err(Failure::invalid(error.to_string()));
    }
    let Some(keys) = state.semel.data_keys() else {
        let reason = "records are not encrypted, or are kept in two stores, so there are no keys to \
                      destroy; see docs/encryption.md";
        return Err(Failure::refused(reason));
    };
    let owner = DataOwner::new(environment, &asked.tenant).with_subject(subject);
    let digest = keys.digest(&owner).await;
    let digest = digest.map_err(|error| store_failure(&error))?;
    // The audit trail gets a keyed digest of the names, never the names.
    let what = if subject.is_some() {
        "subject"
    } else {
        "tenant"
    };
    let kinds = ["admin.erase_data.begun", "admin.erase_data"];
    let detail = json!({"erases": what, "digest": digest});
    let change = state.begin_change(kinds, &operator, &author, None, detail);
    let change = change.await?;
    match state.semel.erase(&asked.tenant, subject).await {
        Ok(erased) => {
            let (destroyed, before) = (erased.destroyed, erased.before);
            let outcome = json!({"outcome": "done", "destroyed": destroyed, "before": before});
            let view = DataErasureView {
                destroyed,
                before,
                digest: erased.digest,
                audited: state.end_change(change, outcome).await,
            };
            Ok(json_response(StatusCode::OK, &view))
        }
        Err(error) => {
            let outcome = json!({"outcome": "store_failed", "kind": error.kind.as_str()});
            state.end_change(change, outcome).await;
            Err(store_failure(&error))
        }
    }
}
