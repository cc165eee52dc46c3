//! `GET /v1/claims/{id}` and `POST /v1/lookups`: what became of a claim, and waiting for it.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use semel_core::{Identity, Record};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::access::Caller;
use super::claims::{Place, fingerprint};
use super::view::{ClaimView, Status, standing};
use super::wire::{
    Failure, Id, Json, P400, P401, P403, P404, P408, P413, P415, P422, P429, P500, P503, Query,
    answer, given, present,
};

impl ApiState {
    /// The record, where there is one that the caller may know of.
    pub(super) async fn see(
        &self,
        caller: &Caller,
        identity: &Identity,
    ) -> Result<Record, Failure> {
        let found = self.semel.engine().look(identity).await;
        let found = found.map_err(|problem| Failure::of_engine(&problem))?;
        let found = found.filter(|record| self.may_see(caller, &record.namespace));
        found.ok_or_else(Failure::not_found)
    }

    /// The record once nobody runs it any more, or as it is after `wait`.
    async fn attach(
        &self,
        caller: &Caller,
        identity: &Identity,
        wait: Duration,
    ) -> Result<Record, Failure> {
        // Seen before waited for: whoever may not know of it takes up no place.
        let record = self.see(caller, identity).await?;
        if wait.is_zero() || record.state != semel_core::State::Running {
            return Ok(record);
        }
        let most = self.semel.policy().max_waiters_per_key;
        let wait = wait.min(self.config.max_wait);
        let found = self.semel.engine().attach(identity, wait, most).await;
        let found = found.map_err(|problem| Failure::of_engine(&problem))?;
        found.ok_or_else(Failure::not_found)
    }

    async fn shown(
        &self,
        identity: &Identity,
        record: &Record,
        took: Duration,
    ) -> Result<Response, Failure> {
        let (state, now) = standing(&self.semel, record).await?;
        let view = ClaimView::of(identity, record, state, took);
        let mut response = answer(StatusCode::OK, &view);
        if view.status == Status::Running {
            let left = record.lease_end().since(now).as_secs().clamp(1, 5);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(left));
        }
        Ok(response)
    }
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitQuery {
    /// Wait so long for a run to end; the server may wait less. 0 asks and doesn't wait.
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
    params(("id" = String, Path, description = "The claim's id.", pattern = "^[0-9a-f]{64}$"), WaitQuery),
    responses(
        (status = 200, description = "Where it stands; `running` with Retry-After where it still runs.", body = ClaimView),
        P400, P401, P403, P404, P429, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn look(
    State(state): State<ApiState>,
    caller: Caller,
    Id(identity): Id,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    let began = clock.now();
    let wait = query.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(Failure::invalid(format!(
            "wait_ms is from 0 to {MAX_WAIT_MS}"
        )));
    }
    let record = Box::pin(state.attach(&caller, &identity, Duration::from_millis(wait))).await?;
    state
        .shown(&identity, &record, clock.now().since(began))
        .await
}

/// Which key to look up. The key goes in the body: addresses end up in logs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookupRequest {
    /// What is done, such as `charge`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    scope: String,
    /// The caller's key.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:-]+$")]
    key: String,
    /// The tenant. Left out, it is the token's own.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// Where given, the record is shown only if it is of this payload.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The same, as the caller's own digest.
    #[serde(default, deserialize_with = "present")]
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
        (status = 200, description = "Where it stands.", body = ClaimView),
        P400, P401, P403, P404, P408, P413, P415, P422, P500, P503
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
    let place = Place {
        scope: &asked.scope,
        key: &asked.key,
        tenant: asked.tenant.as_deref(),
    };
    let (namespace, key) = place.read(&state, &caller)?;
    let wanted = fingerprint(
        &state,
        asked.payload.as_deref(),
        asked.fingerprint.as_deref(),
    )?;
    let identity = Identity::of(state.semel.engine().secret(), &namespace, &key);
    let record = state.see(&caller, &identity).await?;
    if wanted.is_some_and(|wanted| wanted != record.fingerprint) {
        return Err(Failure::of_engine(&semel_core::engine::Problem::Mismatch));
    }
    state
        .shown(&identity, &record, clock.now().since(began))
        .await
}
