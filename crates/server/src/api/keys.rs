//! `POST /v1/claims/{id}/keys`: idempotency keys for downstream systems.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_core::Identity;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiState;
use crate::web::{
    Caller, Failure, Json, Problem400, Problem401, Problem403, Problem404, Problem408, Problem413,
    Problem415, Problem429, Problem500, Problem503, RecordId, hex, json_response,
};

/// The maximum number of downstream keys in one request.
const MAX_NAMES: usize = 16;

/// The name of a downstream key, such as `psp`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, ToSchema)]
#[schema(pattern = "^[ -~]{1,128}$")]
pub(crate) struct Name(String);

pub(super) fn check_names(names: &[Name]) -> Result<(), Failure> {
    if names.len() > MAX_NAMES {
        return Err(Failure::invalid(format!(
            "a request has at most {MAX_NAMES} names"
        )));
    }
    names
        .iter()
        .try_for_each(|Name(name)| crate::web::check_text("a name", name, 128))
}

impl ApiState {
    pub(super) fn derive_keys(
        &self,
        identity: &Identity,
        names: &[Name],
    ) -> BTreeMap<String, String> {
        let secret = self.semel.engine().secret();
        let key = |Name(name): &Name| (name.clone(), identity.derive_key(secret, name));
        names.iter().map(key).collect()
    }
}

/// A request for downstream keys.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysRequest {
    /// One name for each downstream step, such as `psp`.
    #[schema(min_items = 1, max_items = 16)]
    names: Vec<Name>,
}

/// Idempotency keys for downstream systems.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeysView {
    /// The id of the claim.
    id: String,
    /// The keys, by name.
    keys: BTreeMap<String, String>,
}

/// Derive downstream keys.
#[utoipa::path(
    post,
    path = "/v1/claims/{id}/keys",
    tag = "protocol",
    params(("id" = String, Path, description = "The claim's id.", pattern = "^[0-9a-f]{64}$")),
    request_body = KeysRequest,
    responses(
        (status = 200, description = "The keys, which are the same for this operation and name on \
            every attempt.", body = KeysView),
        Problem400, Problem401, Problem403, Problem404, Problem408, Problem413, Problem415, Problem429,
        Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn keys(
    State(state): State<ApiState>,
    caller: Caller,
    RecordId(identity): RecordId,
    Json(asked): Json<KeysRequest>,
) -> Result<Response, Failure> {
    check_names(&asked.names)?;
    if asked.names.is_empty() {
        return Err(Failure::invalid("send at least one name"));
    }
    state.find_record(&caller, &identity).await?;
    let view = KeysView {
        id: hex(identity.as_bytes()),
        keys: state.derive_keys(&identity, &asked.names),
    };
    Ok(json_response(StatusCode::OK, &view))
}
