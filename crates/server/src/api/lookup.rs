//! `GET /v1/claims/{id}` and `POST /v1/lookups`: the state of a claim, and waiting for its end.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use semel_core::{Identity, Record};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::claims::{KeyLocation, compute_fingerprint};
use super::view::{ClaimView, Status, current_state};
use crate::web::{
    Caller, Failure, Json, Problem400, Problem401, Problem403, Problem404, Problem408, Problem413,
    Problem415, Problem422, Problem429, Problem500, Problem503, Query, RecordId,
    deserialize_nullable, deserialize_present, json_response,
};

impl ApiState {
    /// The record, if it exists and the caller may see it.
    pub(super) async fn find_record(
        &self,
        caller: &Caller,
        identity: &Identity,
    ) -> Result<Record, Failure> {
        let found = self.semel.engine().read(identity).await;
        let found = found.map_err(|problem| Failure::from_problem(&problem))?;
        let found = found.filter(|record| self.may_see(caller, &record.namespace));
        found.ok_or_else(Failure::not_found)
    }

    /// The record once it no longer runs, or its state after `wait`.
    async fn wait_for_record(
        &self,
        caller: &Caller,
        identity: &Identity,
        wait: Duration,
    ) -> Result<Record, Failure> {
        // Access is checked before waiting, so callers without access use no wait slot.
        let record = self.find_record(caller, identity).await?;
        if wait.is_zero() || record.state != semel_core::State::Running {
            return Ok(record);
        }
        let most = self.semel.policy().max_waiters_per_key;
        let wait = wait.min(self.config.max_wait);
        let found = self.semel.engine().attach(identity, wait, most).await;
        let found = found.map_err(|problem| Failure::from_problem(&problem))?;
        found.ok_or_else(Failure::not_found)
    }

    async fn respond(
        &self,
        identity: &Identity,
        record: &Record,
        took: Duration,
    ) -> Result<Response, Failure> {
        let (state, now) = current_state(&self.semel, record).await?;
        let view = ClaimView::from_record(identity, record, state, took);
        let mut response = json_response(StatusCode::OK, &view);
        if view.status == Status::Running {
            let left = record.lease_end().since(now).as_secs().clamp(1, 5);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(left));
        }
        Ok(response)
    }
}

/// The wait of a request.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitQuery {
    /// How long to wait for a run to end, in milliseconds. The server may wait less. 0 does not
    /// wait.
    #[serde(default)]
    #[param(minimum = 0, maximum = 86_400_000, nullable = false)]
    wait_ms: Option<u64>,
}

const MAX_WAIT_MS: u64 = 86_400_000;

/// Look at a claim, or wait for it.
#[utoipa::path(
    get,
    path = "/v1/claims/{id}",
    tag = "protocol",
    params(
        ("id" = String, Path, description = "The claim's id.",
         pattern = "^[0-9a-f]{64}$"),
        WaitQuery
    ),
    responses(
        (status = 200, description = "The state of the claim, with Retry-After while it is \
            `running`.", body = ClaimView),
        Problem400, Problem401, Problem403, Problem404, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn look(
    State(state): State<ApiState>,
    caller: Caller,
    RecordId(identity): RecordId,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    let began = clock.now();
    let wait = query.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(Failure::invalid(format!(
            "wait_ms must be from 0 to {MAX_WAIT_MS}"
        )));
    }
    let record =
        Box::pin(state.wait_for_record(&caller, &identity, Duration::from_millis(wait))).await?;
    state
        .respond(&identity, &record, clock.now().since(began))
        .await
}

/// The key to look up. It is in the body, because URLs end up in logs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookupRequest {
    /// The kind of operation, such as `charge`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    scope: String,
    /// The idempotency key.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:-]+$")]
    key: String,
    /// The tenant. Default: the tenant of the token.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// The payload. If it is set, a record with another payload is not shown.
    #[serde(default, deserialize_with = "deserialize_nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// A digest of the payload, instead of the payload.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 32,
        max_length = 128,
        pattern = "^([0-9a-f]{2})+$"
    )]
    fingerprint: Option<String>,
}

/// Look a claim up by its key.
#[utoipa::path(
    post,
    path = "/v1/lookups",
    tag = "protocol",
    request_body = LookupRequest,
    responses(
        (status = 200, description = "The state of the claim.", body = ClaimView),
        Problem400, Problem401, Problem403, Problem404, Problem408, Problem413, Problem415,
        Problem422, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn lookup(
    State(state): State<ApiState>,
    caller: Caller,
    Json(asked): Json<LookupRequest>,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    let began = clock.now();
    let location = KeyLocation {
        scope: &asked.scope,
        key: &asked.key,
        tenant: asked.tenant.as_deref(),
    };
    let (namespace, key) = location.resolve(&state, &caller)?;
    let expected = compute_fingerprint(
        &state,
        asked.payload.as_deref(),
        asked.fingerprint.as_deref(),
    )?;
    let identity = Identity::new(state.semel.engine().secret(), &namespace, &key);
    let record = state.find_record(&caller, &identity).await?;
    if expected.is_some_and(|expected| expected != record.fingerprint) {
        return Err(Failure::from_problem(
            &semel_core::engine::Problem::Mismatch,
        ));
    }
    state
        .respond(&identity, &record, clock.now().since(began))
        .await
}
