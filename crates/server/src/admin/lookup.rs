//! Lookup of a record by its key.

use axum::extract::State;
use axum::response::Response;
use semel_core::{Identity, Namespace};
use semel_http::Refusal;
use serde::Deserialize;
use utoipa::ToSchema;

use super::AdminState;
use super::view::{Detail, RecordView};
use crate::operators::Operator;
use crate::web::{
    Failure, Json, Problem400, Problem401, Problem403, Problem404, Problem408, Problem413,
    Problem415, Problem429, Problem500, Problem503, check_text, deserialize_present,
};

/// The key to look up. It is in the body, because URLs end up in logs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminLookup {
    /// The environment. Default: the environment of the server.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    environment: Option<String>,
    /// The tenant.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// The kind of operation, such as `charge`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    scope: String,
    /// The authenticated caller (principal) that the key belongs to, if keys belong to principals.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 1024,
        pattern = "^[ -~]+$"
    )]
    principal: Option<String>,
    /// The idempotency key.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:-]+$")]
    key: String,
}

/// Look a record up by its key.
#[utoipa::path(
    post,
    path = "/admin/v1/lookups",
    tag = "admin",
    request_body = AdminLookup,
    responses(
        (status = 200, description = "The record.", body = RecordView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem408, Problem413, Problem415,
        Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn lookup(
    State(state): State<AdminState>,
    operator: Operator,
    Json(asked): Json<AdminLookup>,
) -> Result<Response, Failure> {
    let tenant = operator.resolve_tenant(asked.tenant)?;
    check_text("scope", &asked.scope, 128)?;
    for (name, text, most) in [
        ("environment", &asked.environment, 128),
        ("tenant", &tenant, 128),
        ("principal", &asked.principal, 1024),
    ] {
        text.as_deref()
            .map_or(Ok(()), |text| check_text(name, text, most))?;
    }
    let own = state.semel.environment();
    let namespace = Namespace::with_principal(
        asked.environment.as_deref().unwrap_or(own),
        tenant.as_deref().unwrap_or_default(),
        &asked.scope,
        asked.principal.as_deref().unwrap_or_default(),
    );
    let namespace = namespace.map_err(|error| Failure::invalid(error.to_string()))?;
    let key = state
        .semel
        .key_rules()
        .check(&asked.key)
        .map_err(Refusal::from)?;
    let identity = Identity::new(state.semel.engine().secret(), &namespace, &key);
    let record = state.find_record(&operator, &identity).await?;
    state.respond(&identity, &record, Detail::Full).await
}
