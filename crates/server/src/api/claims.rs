//! `POST /v1/claims`: claims a key, and returns a lease or the stored answer.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use semel::core::Code;
use semel_core::engine::{Admission, Engine, Problem, Request};
use semel_core::policy::Mode;
use semel_core::{Fingerprint, Namespace, Token};
use semel_http::Refusal;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::keys::{Name, check_names};
use super::overrides::Overrides;
use super::quota::{ClaimQuota, ClaimTerms};
use super::view::{ClaimView, LeaseView, Status};
use super::{ApiState, finish};
use crate::web::{
    Caller, Failure, Json, Problem400, Problem401, Problem403, Problem408, Problem409, Problem413,
    Problem415, Problem422, Problem429, Problem500, Problem503, check_text, deserialize_nullable,
    deserialize_present, hex, json_response, refuse_own_scope, unhex,
};

/// The key to claim, with its scope and tenant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimRequest {
    /// The kind of operation, such as `charge`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    scope: String,
    /// The idempotency key, which is the same for every retry.
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
    /// The payload of the operation, as any JSON. The same key with another payload is refused.
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
    /// The caller's name, for the audit trail only.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    actor: Option<String>,
    /// 128 random bits. If the response to a claim is lost, the same claim with the same token gets
    /// the same lease.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(
        nullable = false,
        min_length = 32,
        max_length = 32,
        pattern = "^[0-9a-f]{32}$"
    )]
    token: Option<String>,
    /// Whether this is a retry. It saves the store a write that would fail.
    #[serde(default)]
    retry: bool,
    /// Names of downstream keys to return with the lease.
    #[serde(default)]
    #[schema(max_items = 16)]
    derive: Vec<Name>,
    /// Overrides of the policy.
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
        (status = 201, description = "The caller has the lease, or the scope is not enforced: run \
            the operation.", body = ClaimView),
        (status = 200, description = "An earlier run has completed; this is its answer.", body = ClaimView),
        Problem400, Problem401, Problem403, Problem408, Problem409, Problem413, Problem415,
        Problem422, Problem429, Problem500, Problem503
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
    let has_token = asked.token.is_some();
    let built = build_request(&state, &caller, asked)?;
    let (request, names) = (built.request, built.names);
    let identity = *request.identity();
    let terms = ClaimTerms {
        tenant: &built.tenant,
        identity,
        mode: built.mode,
        has_token,
    };
    let quota = ClaimQuota::check(&state, &caller, &terms).await?;
    let engine = state.semel.engine().clone();
    let admitted = match quota {
        None => Box::pin(engine.admit(request)).await,
        // A claim under the caller's own token may win after the caller has left. Any other is
        // released then.
        Some(quota) if has_token => {
            let env = engine.env().clone();
            finish(&env, count_claim(quota, engine, request)).await?
        }
        Some(quota) => count_claim(quota, engine, request).await,
    };
    let took = clock.now().since(began);
    match admitted {
        Admission::Won(out) => {
            let mut lease = LeaseView::from_claim(&out);
            lease.downstream_keys = state.derive_keys(&identity, &names);
            let view = ClaimView {
                lease: Some(lease),
                attempt: Some(out.grant.attempt),
                fence: Some(out.grant.fence.0),
                ..ClaimView::new(&identity, Status::Claimed, took)
            };
            Ok(json_response(StatusCode::CREATED, &view))
        }
        Admission::Unprotected => {
            let view = ClaimView::new(&identity, Status::Unprotected, took);
            Ok(json_response(StatusCode::CREATED, &view))
        }
        Admission::Replayed(replayed) => {
            let view = ClaimView::replayed(&identity, &replayed, took);
            Ok(json_response(StatusCode::OK, &view))
        }
        Admission::Problem(problem) => {
            let id = hex(identity.as_bytes());
            // A caller with another payload learns nothing about the record, not even its id.
            let failure = Failure::from_problem(&problem);
            Ok(match problem {
                Problem::Mismatch => failure,
                _ => failure.with("claimId", id),
            }
            .into_response())
        }
    }
}

/// Claims, and counts the key if it is kept.
async fn count_claim(quota: ClaimQuota, engine: Engine, request: Request) -> Admission {
    let admitted = Box::pin(engine.admit(request)).await;
    match &admitted {
        Admission::Won(won) => quota.count_won(won),
        _ => quota.count_nothing(),
    }
    admitted
}

/// A claim for the engine.
struct BuiltRequest {
    request: Request,
    names: Vec<Name>,
    tenant: String,
    mode: Mode,
}

fn build_request(
    state: &ApiState,
    caller: &Caller,
    asked: ClaimRequest,
) -> Result<BuiltRequest, Failure> {
    let semel = &state.semel;
    let location = KeyLocation {
        scope: &asked.scope,
        key: &asked.key,
        tenant: asked.tenant.as_deref(),
    };
    let (namespace, key) = location.resolve(state, caller)?;
    let fingerprint = compute_fingerprint(
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
    let (tenant, mode) = (namespace.tenant().to_owned(), policy.mode);
    let mut request = Request::new(semel.engine(), namespace, &key, fingerprint, policy);
    request = request.with_retry(asked.retry);
    if let Some(actor) = asked.actor {
        check_text("actor", &actor, 128)?;
        request = request.with_actor(actor);
    }
    if let Some(token) = asked.token {
        request = request.with_token(parse_token(&token)?);
    }
    Ok(BuiltRequest {
        request,
        names: asked.derive,
        tenant,
        mode,
    })
}

/// The location of a key, as a request names it.
pub(super) struct KeyLocation<'a> {
    pub(super) scope: &'a str,
    pub(super) key: &'a str,
    pub(super) tenant: Option<&'a str>,
}

impl KeyLocation<'_> {
    pub(super) fn resolve(
        &self,
        state: &ApiState,
        caller: &Caller,
    ) -> Result<(Namespace, semel_core::Key), Failure> {
        check_text("scope", self.scope, 128)?;
        refuse_own_scope(self.scope)?;
        if let Some(tenant) = self.tenant {
            check_text("tenant", tenant, 128)?;
        }
        let tenant = caller.resolve_tenant(self.tenant)?;
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

/// The fingerprint of the payload, as in the typed library, or of the caller's digest.
pub(super) fn compute_fingerprint(
    state: &ApiState,
    payload: Option<&RawValue>,
    digest: Option<&str>,
) -> Result<Option<Fingerprint>, Failure> {
    let builder = Fingerprint::builder(state.semel.engine().secret());
    match (payload, digest) {
        (None, None) => Ok(None),
        (Some(payload), None) => {
            let made = builder.json(payload.get().as_bytes());
            let made = made.map_err(|error| Failure::new(Code::PayloadInvalid, error.to_string()));
            Ok(Some(made?.finish()))
        }
        (None, Some(digest)) => {
            let bytes = unhex(digest).filter(|bytes| (16..=64).contains(&bytes.len()));
            let detail = "fingerprint must be 16 to 64 bytes in lower-case hexadecimal digits";
            let bytes = bytes.ok_or_else(|| Failure::invalid(detail))?;
            Ok(Some(builder.part(&bytes).finish()))
        }
        (Some(_), Some(_)) => Err(Failure::refused(
            "send either the payload or its fingerprint",
        )),
    }
}

pub(super) fn parse_token(text: &str) -> Result<Token, Failure> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let detail = "token must be 32 lower-case hexadecimal digits";
    let bytes = bytes.ok_or_else(|| Failure::invalid(detail))?;
    Ok(Token(u128::from_be_bytes(bytes)))
}
