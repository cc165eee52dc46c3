//! What a request goes through: the idempotency layer around the proxy, made from the settings. A reload
//! makes a new one.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use semel::http::X_REQUEST_ID;
use semel::http::{
    Body, BoxError, BuildError, Credentials, Idempotency, IdempotencyLayer, KeySource, Limits,
    Payload, Refusal, Route,
};
use semel::{CrashPolicy, KeyRules, OnBusy, Policy, Semel, StoreDown};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::config::{self, Config, Limits as ProcessLimits, LostAnswer, RouteSettings};
use crate::door::Door;
use crate::identity::{Find, Finders, KeyFileError, NoToken, Token};
use crate::limits::{By, Caller, Limiter, refused};
use crate::listener::{Peer, of_one_caller};
use crate::proxy::{Proxy, RoutePlaces, WhenLost, is_grpc, problem};
use crate::tls::{self, TlsError};

/// Why a stack can't be made of the settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// A route can't be used.
    #[error(transparent)]
    Route(#[from] BuildError),
    /// The key of tokens can't be used.
    #[error(transparent)]
    Tokens(#[from] KeyFileError),
    /// TLS towards the service can't be used.
    #[error("upstream TLS: {0}")]
    Tls(#[from] TlsError),
}

/// The layer around the proxy.
pub struct Stack {
    service: Idempotency<Proxy>,
    entropy: Arc<dyn semel::core::Entropy>,
    reads_tokens: bool,
    has_service: bool,
    door: Door,
    finders: Finders,
    limiter: Limiter,
}

impl Stack {
    /// Makes one on an engine that is there already.
    ///
    /// # Errors
    /// [`StackError`] says what is wrong.
    pub fn new(
        config: &Config,
        semel: &Semel,
        limiter: Limiter,
        tunnels: TaskTracker,
    ) -> Result<Self, StackError> {
        let finders = Finders::new(config)?;
        finders.fetch_keys(semel.engine().env())?;
        let mut builder = IdempotencyLayer::builder(semel.engine().clone())
            .environment(&config.environment)
            .key_rules(key_rules(config))
            .defaults(route(&config.defaults, &finders, config));
        for entry in &config.routes {
            builder = builder.route(&entry.path, route(&entry.settings, &finders, config));
        }
        let proxy = Proxy::new(config, &tls::client_config(&config.upstream)?, tunnels);
        let of_tokens = |whose: &config::Whose| whose.from == config::From::Jwt;
        Ok(Self {
            service: builder.build()?.layer(proxy),
            entropy: Arc::clone(&semel.engine().env().entropy),
            reads_tokens: of_tokens(&config.tenants) || of_tokens(&config.principals),
            has_service: !config.upstream.urls.is_empty(),
            door: Door::new(config),
            finders,
            limiter,
        })
    }

    /// Answers one request.
    pub async fn answer<B>(&self, mut request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.has_service {
            return nothing_behind();
        }
        if let Err(refused) = self.door.pass(&mut request) {
            return refused;
        }
        let is_grpc = is_grpc(request.headers());
        let id = request
            .headers()
            .get(X_REQUEST_ID)
            .filter(|id| id.len() <= 128);
        let id = id.cloned();
        let token = self.reads_tokens.then(Token::default);
        if let Some(token) = &token {
            request.extensions_mut().insert(token.clone());
        }
        let (mut request, callers) = self.callers(request);
        match self.limiter.enter(&callers) {
            Err(met) => return refused(met),
            Ok(ticket) => {
                request.extensions_mut().insert(ticket.room());
                request.extensions_mut().insert(ticket);
            }
        }
        match self.service.clone().call(request).await {
            Ok(response) => match token.and_then(|token| token.failure()) {
                Some(why) if was_refused_for_it(&response) => unauthenticated(why),
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

    /// Whose request it is, as far as that is counted apart.
    fn callers<B>(&self, request: Request<B>) -> (Request<B>, Vec<Caller>) {
        let mut callers = Vec::new();
        if self.limiter.tells_apart(By::Address)
            && let Some(address) = address(&request)
        {
            let address = of_one_caller(address).to_string();
            callers.push(Caller::new(By::Address, &address));
        }
        let (tenant, principal) = (&self.finders.tenant, &self.finders.principal);
        let tenant = tenant
            .as_ref()
            .filter(|_| self.limiter.tells_apart(By::Tenant));
        let principal = principal
            .as_ref()
            .filter(|_| self.limiter.tells_apart(By::Principal));
        if tenant.is_none() && principal.is_none() {
            return (request, callers);
        }
        let (parts, body) = request.into_parts();
        // Whoever names none is one of those who don't.
        let named = |find: &Find| find(&parts).unwrap_or_default();
        let of_tenant = tenant.map(named).unwrap_or_default();
        if tenant.is_some() {
            callers.push(Caller::new(By::Tenant, &of_tenant));
        }
        if let Some(principal) = principal.map(named) {
            let name = format!("{of_tenant}\0{principal}");
            callers.push(Caller::new(By::Principal, &name));
        }
        (Request::from_parts(parts, body), callers)
    }

    fn new_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&format!("{:032x}", self.entropy.next_u128())).ok()
    }
}

/// Where a request comes from. The door has taken out `X-Forwarded-For` of those who may not say so.
fn address<B>(request: &Request<B>) -> Option<IpAddr> {
    let lines = request.headers().get_all("x-forwarded-for");
    let last = lines.iter().next_back().and_then(|line| line.to_str().ok());
    let last = last.and_then(|line| line.rsplit(',').next());
    let told = last.and_then(|address| address.trim().parse().ok());
    told.or_else(|| {
        request
            .extensions()
            .get::<Peer>()
            .map(|peer| peer.address.ip())
    })
}

/// Only Semel's own paths are served, and this is none of them.
fn nothing_behind() -> Response<Body> {
    let detail =
        "there is no service behind this address, only Semel's own paths; nothing was started";
    let title = "There is nothing at this address";
    problem(StatusCode::NOT_FOUND, "not_found", title, detail, false)
}

fn was_refused_for_it(response: &Response<Body>) -> bool {
    matches!(
        response.extensions().get::<Refusal>(),
        Some(Refusal::TenantRequired | Refusal::Namespace(_))
    )
}

/// A token is missing or wrong: what clients that refresh theirs look for.
fn unauthenticated(why: NoToken) -> Response<Body> {
    let (detail, challenge) = match why {
        NoToken::Absent => (
            "the request has no bearer token; nothing was started",
            "Bearer",
        ),
        NoToken::Expired => (
            "the token is out of date; nothing was started",
            "Bearer error=\"invalid_token\", error_description=\"expired\"",
        ),
        NoToken::Invalid => (
            "the token can't be used; nothing was started",
            "Bearer error=\"invalid_token\"",
        ),
    };
    let title = "The request doesn't say whose it is";
    let mut response = problem(
        StatusCode::UNAUTHORIZED,
        "token_required",
        title,
        detail,
        false,
    );
    let challenge = HeaderValue::from_static(challenge);
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}

pub(crate) fn key_rules(config: &Config) -> KeyRules {
    KeyRules {
        max_bytes: config.keys.max_bytes,
        extra: config.keys.extra.clone().into(),
    }
}

/// The policy of a route, but for what its profile says.
pub(crate) fn policy(route: &RouteSettings) -> Policy {
    Policy {
        lease: route.lease.0,
        retention: route.retention.0,
        crash: match route.crash {
            config::Crash::Takeover => CrashPolicy::Takeover,
            config::Crash::Hold => CrashPolicy::Hold,
        },
        max_attempts: route.max_attempts,
        on_busy: match (route.on_busy, profile(route).terms().waits) {
            (Some(config::OnBusy::Wait), _) | (None, true) => OnBusy::Wait(route.wait.0),
            (Some(config::OnBusy::Refuse), _) | (None, false) => OnBusy::Refuse,
        },
        max_waiters_per_key: route.max_waiters,
        max_answer_bytes: route.max_answer.bytes(),
        store_down: match route.store_down {
            config::StoreDown::Closed => StoreDown::Closed,
            config::StoreDown::Open => StoreDown::Open,
        },
        mode: match route.mode {
            config::Mode::Enforce => semel::Mode::Enforce,
            config::Mode::Observe => semel::Mode::Observe,
            config::Mode::Off => semel::Mode::Off,
        },
    }
}

const fn profile(route: &RouteSettings) -> semel::http::Profile {
    use semel::http::Profile;
    match route.profile {
        config::Profile::Ietf => Profile::Ietf,
        config::Profile::Stripe => Profile::Stripe,
        config::Profile::Intake => Profile::Intake,
        config::Profile::Acp => Profile::Acp,
    }
}

fn credentials(config: &Config) -> Credentials {
    let names = config.credentials.headers.iter();
    Credentials {
        headers: names.filter_map(|name| header_name(name)).collect(),
        cookies: config.credentials.cookies.clone(),
    }
}

fn route(settings: &RouteSettings, finders: &Finders, config: &Config) -> Route {
    let mut route = Route::new()
        .credentials(credentials(config))
        .profile(profile(settings))
        .policy(policy(settings))
        .methods(methods(&settings.methods))
        .key(key_source(settings))
        .payload(payload(&settings.fingerprint))
        .limits(Limits {
            request_bytes: settings.max_body.bytes(),
            request_time: settings.body_time.0,
            gather_time: settings.gather_time.0,
            ..Limits::default()
        })
        .extension(WhenLost {
            doubts: settings.lost_answer == LostAnswer::Doubt,
            observes: settings.mode == config::Mode::Observe,
        });
    if let Some(most) = settings.max_running {
        route = route.extension(RoutePlaces(Arc::new(Semaphore::new(most))));
    }
    if let Some(required) = settings.require_key {
        route = route.key_is_required(required);
    }
    if let Some(scope) = &settings.scope {
        route = route.scope(scope);
    }
    if let Some(longest) = settings.caller_retention {
        route = route.caller_ttl(longest.0);
    }
    if settings.streams {
        route = route.streams();
    }
    for name in &settings.keep_headers {
        route = route.keep_header(name);
    }
    if let Some(tenant) = finders.tenant.clone().filter(|_| settings.has_tenants) {
        route = route.multi_tenant().tenant(move |parts| tenant(parts));
    }
    if let Some(principal) = finders.principal.clone() {
        route = route.principal(move |parts| principal(parts));
    }
    route
}

fn methods(names: &[String]) -> Vec<Method> {
    let method = |name: &String| Method::from_bytes(name.as_bytes()).ok();
    names.iter().filter_map(method).collect()
}

fn header_name(text: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(text.as_bytes()).ok()
}

fn key_source(settings: &RouteSettings) -> KeySource {
    let named = settings.key_header.as_deref().and_then(header_name);
    match (&settings.key_field, named) {
        (Some(field), _) => KeySource::field(field.clone()),
        (None, Some(name)) => KeySource::Named(name),
        (None, None) => KeySource::Header,
    }
}

fn payload(fingerprint: &config::Fingerprint) -> Payload {
    use semel::http::Compare;
    let paths = |paths: &[String]| paths.iter().cloned().map(Into::into).collect();
    Payload {
        method: fingerprint.method,
        authority: fingerprint.authority,
        path: fingerprint.path,
        query: fingerprint.query,
        content_type: fingerprint.content_type,
        headers: fingerprint
            .headers
            .iter()
            .filter_map(|name| header_name(name))
            .collect(),
        body: match fingerprint.body {
            config::Compare::Nothing => Compare::Nothing,
            config::Compare::Bytes => Compare::Bytes,
            config::Compare::Meaning if !fingerprint.include.is_empty() => {
                Compare::Only(paths(&fingerprint.include))
            }
            config::Compare::Meaning if !fingerprint.exclude.is_empty() => {
                Compare::Except(paths(&fingerprint.exclude))
            }
            config::Compare::Meaning => Compare::Meaning,
        },
    }
}

/// The engine's own settings.
pub(crate) fn engine_config(config: &Config) -> semel::EngineConfig {
    let (engine, limits) = (&config.engine, &config.limits);
    semel::EngineConfig {
        max_waiters: limits.waiting,
        max_waiters_per_tenant: ProcessLimits::share_of(limits.tenant_share, limits.waiting),
        call_limit: engine.store_timeout.0,
        breaker: semel::BreakerConfig {
            failures: engine.breaker_failures,
            first_try: engine.breaker_first_try.0,
            open_for: engine.breaker_open_for.0,
        },
        cache: semel::CacheConfig {
            max_bytes: engine.cache_size.0,
            max_age: engine.cache_age.0,
        },
    }
}

/// Shared by everything that answers requests.
pub(crate) type SharedStack = Arc<arc_swap::ArcSwap<Stack>>;
