//! The stack of a request: trust, limits and the idempotency layer around the proxy.
//!
//! It is built from the settings, and a reload builds a new one.

mod responses;
mod routes;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderValue;
use http::{Request, Response};
use http_body::Body as HttpBody;
use semel::Semel;
use semel::http::{Body, BoxError, BuildError, IdempotencyLayer, IdempotencyService, X_REQUEST_ID};
use tokio_util::task::TaskTracker;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::config::{self, Config, Protocol};
use crate::identity::{IdentityFinder, IdentityFinders, KeyFileError, RequestToken};
use crate::limits::{Caller, LimitScope, Limiter, limit_response};
use crate::listener::caller_network;
use crate::proxy::{UpstreamProxy, build_client, is_grpc};
use crate::tls::{self, TlsError};
use crate::trust::TrustPolicy;
use responses::{is_identity_refusal, no_service_response, unauthenticated_response};
use routes::build_route;
pub use routes::key_openapi;
pub(crate) use routes::{engine_config, key_rules};

/// The settings cannot be put to work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// A route is invalid.
    #[error(transparent)]
    Route(#[from] BuildError),
    /// A key of tokens is unusable.
    #[error(transparent)]
    Tokens(#[from] KeyFileError),
    /// The TLS settings of the upstream service are unusable.
    #[error("upstream TLS: {0}")]
    Tls(#[from] TlsError),
}

/// The idempotency layer around the proxy, and everything in front of it.
pub struct Stack {
    service: IdempotencyService<UpstreamProxy>,
    entropy: Arc<dyn semel::core::Entropy>,
    reads_tokens: bool,
    has_service: bool,
    trust: TrustPolicy,
    finders: IdentityFinders,
    limiter: Limiter,
}

impl Stack {
    /// Builds the stack on an open engine.
    ///
    /// # Errors
    /// [`StackError`] if the settings are unusable.
    pub fn new(
        config: &Config,
        semel: &Semel,
        limiter: Limiter,
        tunnels: TaskTracker,
    ) -> Result<Self, StackError> {
        let finders = IdentityFinders::new(config)?;
        finders.fetch_keys(semel.engine().env())?;
        let tls = tls::client_config(config)?;
        let client = build_client(&config.upstream, Protocol::Http1, &tls);
        let route = |settings| build_route(settings, &finders, &client, config);
        let mut builder = IdempotencyLayer::builder(semel.engine().clone())
            .environment(&config.environment)
            .key_rules(key_rules(config))
            .defaults(route(&config.defaults));
        for entry in &config.routes {
            builder = builder.route(&entry.path, route(&entry.settings));
        }
        let proxy = UpstreamProxy::new(config, &tls, tunnels);
        let is_from_token =
            |identity: &config::IdentitySettings| identity.from == config::IdentitySource::Jwt;
        Ok(Self {
            service: builder.build()?.layer(proxy),
            entropy: Arc::clone(&semel.engine().env().entropy),
            reads_tokens: is_from_token(&config.tenants) || is_from_token(&config.principals),
            has_service: !config.upstream.urls.is_empty(),
            trust: TrustPolicy::new(config),
            finders,
            limiter,
        })
    }

    /// Handles a request.
    pub async fn handle<B>(&self, mut request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.has_service {
            return no_service_response();
        }
        if let Err(response) = self.trust.sanitize(&mut request) {
            return response;
        }
        let is_grpc = is_grpc(request.version(), request.headers());
        let id = request
            .headers()
            .get(X_REQUEST_ID)
            .filter(|id| id.len() <= 128);
        let id = id.cloned();
        let token = self.reads_tokens.then(RequestToken::default);
        if let Some(token) = &token {
            request.extensions_mut().insert(token.clone());
        }
        let (mut request, callers) = self.find_callers(request);
        if let Some(quota) = self.limiter.key_quota(&callers) {
            request.extensions_mut().insert(quota);
        }
        match self.limiter.enter(&callers) {
            Err(exceeded) => return limit_response(exceeded),
            Ok(ticket) => {
                request.extensions_mut().insert(ticket.body_room());
                request.extensions_mut().insert(ticket);
            }
        }
        match self.service.clone().call(request).await {
            Ok(response) => match token.and_then(|token| token.problem()) {
                Some(problem) if is_identity_refusal(&response) => {
                    unauthenticated_response(problem)
                }
                _ => response,
            },
            Err(error) => {
                let mut response = error.response(is_grpc);
                if let Some(id) = id.or_else(|| self.new_id()) {
                    response.headers_mut().insert(X_REQUEST_ID, id);
                }
                response
            }
        }
    }

    /// The address of a request's client, which a trusted proxy may name.
    pub(crate) fn client_address<B>(&self, request: &Request<B>) -> Option<IpAddr> {
        self.trust.client_address(request)
    }

    /// The callers of a request that have limits of their own.
    fn find_callers<B>(&self, request: Request<B>) -> (Request<B>, Vec<Caller>) {
        let mut callers = Vec::new();
        if self.limiter.has_limit_for(LimitScope::Address)
            && let Some(address) = self.client_address(&request)
        {
            let address = caller_network(address).to_string();
            callers.push(Caller::new(LimitScope::Address, &address));
        }
        let (tenant, principal) = (&self.finders.tenant, &self.finders.principal);
        let tenant = tenant
            .as_ref()
            .filter(|_| self.limiter.has_limit_for(LimitScope::Tenant));
        let principal = principal
            .as_ref()
            .filter(|_| self.limiter.has_limit_for(LimitScope::Principal));
        if tenant.is_none() && principal.is_none() {
            return (request, callers);
        }
        let (parts, body) = request.into_parts();
        // Requests without a name count as one caller.
        let named = |find: &IdentityFinder| find(&parts).unwrap_or_default();
        let tenant_name = tenant.map(named).unwrap_or_default();
        if tenant.is_some() {
            callers.push(Caller::new(LimitScope::Tenant, &tenant_name));
        }
        if let Some(principal) = principal.map(named) {
            let name = format!("{tenant_name}\0{principal}");
            callers.push(Caller::new(LimitScope::Principal, &name));
        }
        (Request::from_parts(parts, body), callers)
    }

    fn new_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&format!("{:032x}", self.entropy.next_u128())).ok()
    }
}

/// The current stack, which a reload replaces.
pub(crate) type SharedStack = Arc<arc_swap::ArcSwap<Stack>>;
