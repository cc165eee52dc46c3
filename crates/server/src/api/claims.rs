//! `POST /v1/claims`: from key and payload to a lease, or to an answer.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use semel_core::engine::{Admitted, Problem, Request};
use semel_core::{Fingerprint, Namespace, Token};
use semel_http::Refusal;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ApiState;
use super::access::Caller;
use super::lease::check_names;
use super::terms::Overrides;
use super::view::{ClaimView, LeaseView, Status};
use super::wire::{
    Failure, Json, P400, P401, P403, P408, P409, P413, P415, P422, P429, P500, P503, answer,
    check_text, given, hex, present, unhex,
};

/// Which key, in which scope, of which tenant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimRequest {
    /// What is done, such as `charge`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    scope: String,
    /// The caller's key: the same for every retry.
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
    /// What is asked for: any JSON. The same key with another payload is refused.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// In place of the payload: a digest of it, made by the caller.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 32,
        max_length = 128,
        pattern = "^([0-9a-f]{2})+$"
    )]
    fingerprint: Option<String>,
    /// Who asks, for the audit trail alone.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    actor: Option<String>,
    /// 128 random bits of the caller's: a claim that is sent again with the same token after a lost reply gets
    /// the same lease.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 32,
        max_length = 32,
        pattern = "^[0-9a-f]{32}$"
    )]
    token: Option<String>,
    /// Whether the caller has asked before with this key: spares the store a write that would lose.
    #[serde(default)]
    retry: bool,
    /// Names of keys for systems further down the road, to be given with the lease.
    #[serde(default)]
    #[schema(max_items = 16)]
    derive: Vec<super::lease::Name>,
    /// Changes to the policy.
    #[serde(default)]
    policy: Overrides,
}

/// Claim a key.
#[utoipa::path(
    post,
    path = "/v1/claims",
    tag = "protocol",
    request_body = ClaimRequest,
    responses(
        (status = 201, description = "The lease is yours, or the scope is not enforced: run it.", body = ClaimView),
        (status = 200, description = "An earlier run answered.", body = ClaimView),
        P400, P401, P403, P408, P409, P413, P415, P422, P429, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn claim(
    State(state): State<ApiState>,
    caller: Caller,
    Json(asked): Json<ClaimRequest>,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    let began = clock.now();
    let (request, names) = read(&state, &caller, asked)?;
    let identity = *request.identity();
    let admitted = Box::pin(state.semel.engine().admit(request)).await;
    let took = clock.now().since(began);
    match admitted {
        Admitted::Won(out) => {
            let mut lease = LeaseView::of(&out);
            lease.downstream_keys = state.derive(&identity, &names);
            let view = ClaimView {
                lease: Some(lease),
                attempt: Some(out.grant.attempt),
                fence: Some(out.grant.fence.0),
                ..ClaimView::new(&identity, Status::Claimed, took)
            };
            Ok(answer(StatusCode::CREATED, &view))
        }
        Admitted::Unprotected => {
            let view = ClaimView::new(&identity, Status::Unprotected, took);
            Ok(answer(StatusCode::CREATED, &view))
        }
        Admitted::Replayed(replayed) => {
            let view = ClaimView::replayed(&identity, &replayed, took);
            Ok(answer(StatusCode::OK, &view))
        }
        Admitted::Problem(problem) => {
            let id = hex(identity.as_bytes());
            // Who has another payload learns nothing of the record, not even what to look it up by.
            let failure = Failure::of_engine(&problem);
            Ok(match problem {
                Problem::Mismatch => failure,
                _ => failure.with("claimId", id),
            }
            .into_response())
        }
    }
}

fn read(
    state: &ApiState,
    caller: &Caller,
    asked: ClaimRequest,
) -> Result<(Request, Vec<super::lease::Name>), Failure> {
    let semel = &state.semel;
    let place = Place {
        scope: &asked.scope,
        key: &asked.key,
        tenant: asked.tenant.as_deref(),
    };
    let (namespace, key) = place.read(state, caller)?;
    let fingerprint = fingerprint(
        state,
        asked.payload.as_deref(),
        asked.fingerprint.as_deref(),
    )?;
    let fingerprint =
        fingerprint.unwrap_or_else(|| Fingerprint::builder(semel.engine().secret()).finish());
    let policy = state
        .config
        .policy_for(&asked.scope, semel.policy(), &asked.policy)?;
    check_names(&asked.derive)?;
    let mut request = Request::new(semel.engine(), namespace, &key, fingerprint, policy);
    request = request.asked_before(asked.retry);
    if let Some(actor) = asked.actor {
        check_text("actor", &actor, 128)?;
        request = request.asked_by(actor);
    }
    if let Some(token) = asked.token {
        request = request.with_token(token_of(&token)?);
    }
    Ok((request, asked.derive))
}

/// Where a key is, as a request names it.
pub(super) struct Place<'a> {
    pub(super) scope: &'a str,
    pub(super) key: &'a str,
    pub(super) tenant: Option<&'a str>,
}

impl Place<'_> {
    pub(super) fn read(
        &self,
        state: &ApiState,
        caller: &Caller,
    ) -> Result<(Namespace, semel_core::Key), Failure> {
        check_text("scope", self.scope, 128)?;
        if let Some(tenant) = self.tenant {
            check_text("tenant", tenant, 128)?;
        }
        let tenant = caller.tenant(self.tenant)?;
        let key = state
            .semel
            .key_rules()
            .check(self.key)
            .map_err(Refusal::from)?;
        let namespace = Namespace::new(state.semel.environment(), &tenant, self.scope);
        Ok((
            namespace.map_err(|error| Failure::invalid(error.to_string()))?,
            key,
        ))
    }
}

/// Of the payload as the typed library makes it, or of the caller's own digest.
pub(super) fn fingerprint(
    state: &ApiState,
    payload: Option<&RawValue>,
    digest: Option<&str>,
) -> Result<Option<Fingerprint>, Failure> {
    let builder = Fingerprint::builder(state.semel.engine().secret());
    match (payload, digest) {
        (None, None) => Ok(None),
        (Some(payload), None) => {
            let made = builder.json(payload.get().as_bytes()).map_err(|error| {
                let mut failure = Failure::of("idempotency_payload_invalid", error.to_string());
                // Well formed, and still not to be compared.
                failure.0.status = 422;
                failure
            });
            Ok(Some(made?.finish()))
        }
        (None, Some(digest)) => {
            let bytes = unhex(digest).filter(|bytes| (16..=64).contains(&bytes.len()));
            let detail = "fingerprint is 16 to 64 bytes, in lower-case hexadecimal digits";
            let bytes = bytes.ok_or_else(|| Failure::invalid(detail))?;
            Ok(Some(builder.part(&bytes).finish()))
        }
        (Some(_), Some(_)) => Err(Failure::refused(
            "give the payload or its fingerprint, not both",
        )),
    }
}

pub(super) fn token_of(text: &str) -> Result<Token, Failure> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let detail = "token is 32 lower-case hexadecimal digits";
    let bytes = bytes.ok_or_else(|| Failure::invalid(detail))?;
    Ok(Token(u128::from_be_bytes(bytes)))
}
