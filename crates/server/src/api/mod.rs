//! The protocol API: claim, renew and settle by explicit calls.
//!
//! It is for workers, functions and middleware in other languages. It reads key and fingerprint,
//! calls [`semel_core::engine`], and writes the result. The effect runs at the caller, which renews
//! and settles by further calls, each of which may reach another server. `docs/api.md` is the
//! guide, and `spec/openapi.json` the contract.

mod answer;
mod claims;
mod keys;
mod lease;
mod lookup;
mod overrides;
mod quota;
mod view;

use std::sync::Arc;

use crate::web::{Access, BodyLimits, Failure, method_not_allowed, with_fallbacks};
use axum::Router;
use axum::extract::FromRef;
use semel::Semel;
use semel_core::Env;
use semel_core::engine::Problem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use answer::{AnswerInput, AnswerView, json_or_base64};
pub use overrides::ApiConfig;

pub(crate) use view::{Status, current_state, store_failure};

/// The state of the protocol API. Clones share it.
#[derive(Clone, Debug)]
pub struct ApiState {
    semel: Semel,
    access: Access,
    config: Arc<ApiConfig>,
}

impl ApiState {
    /// The state of an API on `semel`, for the callers that `access` allows.
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

/// Does the work to its end, even if the caller leaves.
async fn finish<T: Send + 'static>(
    env: &Env,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, done) = tokio::sync::oneshot::channel();
    env.spawn.spawn(Box::pin(async move {
        let _ = sender.send(work.await);
    }));
    done.await
        .map_err(|_| Failure::from_problem(&Problem::ShutDown))
}

impl FromRef<ApiState> for Access {
    fn from_ref(state: &ApiState) -> Self {
        state.access.clone()
    }
}

impl FromRef<ApiState> for BodyLimits {
    fn from_ref(state: &ApiState) -> Self {
        Self {
            max_bytes: state.config.max_request_bytes,
            timeout: state.config.body_timeout,
            env: state.semel.engine().env().clone(),
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(claims::claim))
        .routes(routes!(lookup::look))
        .routes(routes!(lease::renew))
        .routes(routes!(lease::settle))
        .routes(routes!(keys::keys))
        .routes(routes!(lookup::lookup))
}

/// The router of the API. Check the address of its listener:
/// [`check_exposure`](crate::web::check_exposure).
///
/// It answers unknown paths with a problem document. To merge it into a larger router, use
/// [`bare_router`].
pub fn router(state: ApiState) -> Router {
    with_fallbacks(bare_router(state))
}

/// The router without a fallback for unknown paths.
pub fn bare_router(state: ApiState) -> Router {
    Router::from(routes())
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}
