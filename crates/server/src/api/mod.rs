//! The protocol API: for code that isn't HTTP-shaped. A worker, a function, a middleware in another language.
//!
//! A door like any other: it reads key and fingerprint, hands them to [`semel_core::engine`], and writes the
//! answer. The effect runs at the caller's, which renews and settles by further calls; each of them may reach another
//! server than the one before. `docs/api.md` is the guide, `spec/openapi.json` the contract.

mod access;
mod answer;
mod claims;
mod lease;
mod look;
mod terms;
mod view;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::response::IntoResponse as _;
use semel::Semel;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use access::{Access, AccessError, MIN_TOKEN_BYTES, Tokens, check_exposure};
pub use terms::ApiConfig;

pub(crate) use access::{Caller, bearer, digest, exposure, only_by_loopback_name};
pub(crate) use answer::{AnswerInput, AnswerView, shown};
pub(crate) use terms::Crash;
pub(crate) use view::{Status, millis, standing, store_failed, time};
pub(crate) use wire::{
    Failure, Id, Intake, Json, P400, P401, P403, P404, P408, P409, P413, P415, P422, P429, P500,
    P503, ProblemDocument, Query, answer as answered, check_text, given, hex, present, unhex,
    whole, whole_or_none,
};

/// What the protocol API is made of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ApiState {
    semel: Semel,
    access: Access,
    config: Arc<ApiConfig>,
}

impl ApiState {
    /// The API on `semel`, for whom `access` lets in.
    #[must_use]
    pub fn new(semel: Semel, access: Access, config: ApiConfig) -> Self {
        let config = Arc::new(config);
        Self {
            semel,
            access,
            config,
        }
    }
}

impl FromRef<ApiState> for Access {
    fn from_ref(state: &ApiState) -> Self {
        state.access.clone()
    }
}

impl FromRef<ApiState> for Intake {
    fn from_ref(state: &ApiState) -> Self {
        Self {
            max_bytes: state.config.max_request_bytes,
            patience: state.config.patience,
            env: state.semel.engine().env().clone(),
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(claims::claim))
        .routes(routes!(look::look))
        .routes(routes!(lease::renew))
        .routes(routes!(lease::settle))
        .routes(routes!(lease::keys))
        .routes(routes!(look::lookup))
}

/// The API as a router, to be mounted on any listener. Check the address first: [`check_exposure`].
///
/// Answers every path with a problem document, those included that it doesn't have; merge it into a larger
/// router with [`bare_router`].
pub fn router(state: ApiState) -> Router {
    with_fallbacks(bare_router(state))
}

/// The same without an answer for other paths.
pub fn bare_router(state: ApiState) -> Router {
    Router::from(routes())
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

pub(crate) fn with_fallbacks(router: Router) -> Router {
    router.fallback(|| async {
        Failure::of("not_found", "there is nothing at this address").into_response()
    })
}

pub(crate) async fn wrong_method() -> axum::response::Response {
    Failure::of(
        "method_not_allowed",
        "see the Allow header for the methods of this address",
    )
    .into_response()
}
