//! The forwarding service: what the idempotency layer is put around.
//!
//! | file | is |
//! |---|---|
//! | `headers` | what of a head goes on, and what is added |
//! | `connect` | connections to the service |
//! | `upgrade` | WebSocket |
//! | `error` | what can go wrong, and what is known about the effect then |

mod connect;
mod error;
mod headers;
mod upgrade;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HeaderMap;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use rustls::ClientConfig;
use semel::core::CrashPolicy;
use semel::http::{Body, Lease, Outcome, has_dot_segments};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::config::{Config, Host, Protocol};
use crate::limits::{By, RunPlace, Ticket};
use connect::UpstreamClient;
pub use error::{Cause, ClientFault, ProxyError, Retry, SEMEL_OUTCOME};
pub(crate) use error::{is_grpc, problem};
use headers::Rewrite;
pub use headers::{SEMEL_ATTEMPT, SEMEL_DOWNSTREAM_KEY, SEMEL_FENCE};
use upgrade::{Bounds, Wanted};

/// What a route says about answers that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhenLost {
    /// Whether the key is then in doubt, also where its crash policy wouldn't have it so.
    pub doubts: bool,
    /// Whether keys are only observed: then the next request runs, whatever the record says.
    pub observes: bool,
}

/// Forwards requests to the service. Cheap to clone.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
}

struct Shared {
    targets: Vec<Target>,
    next: AtomicUsize,
    client: UpstreamClient,
    /// For requests that change the protocol or keep their host, which only HTTP/1.1 can.
    http1: UpstreamClient,
    trust_forwarded: bool,
    keep_host: bool,
    /// Only TLS agrees on HTTP/2: without it, a call of gRPC's can't be one.
    may_speak_http2: bool,
    response_timeout: Duration,
    place_timeout: Duration,
    tunnel: Bounds,
    tunnels: TaskTracker,
}

struct Target {
    scheme: Scheme,
    authority: Authority,
    base: String,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<&str> = self
            .shared
            .targets
            .iter()
            .map(|target| target.authority.host())
            .collect();
        write!(f, "Proxy({})", hosts.join(", "))
    }
}

impl Proxy {
    /// A proxy with these settings. `tunnels` gets the tasks of connections that changed their protocol.
    #[must_use]
    pub fn new(config: &Config, tls: &ClientConfig, tunnels: TaskTracker) -> Self {
        let upstream = &config.upstream;
        let targets = upstream.urls.iter().filter_map(|url| target(url)).collect();
        let targets: Vec<Target> = targets;
        let shared = Shared {
            may_speak_http2: targets.iter().any(|target| target.scheme == Scheme::HTTPS),
            targets,
            next: AtomicUsize::new(0),
            client: connect::client(upstream, upstream.protocol, tls),
            http1: connect::client(upstream, Protocol::Http1, tls),
            trust_forwarded: config.listener.trust_forwarded,
            keep_host: upstream.host == Host::Client && upstream.protocol != Protocol::H2c,
            response_timeout: upstream.response_timeout.0,
            place_timeout: upstream.connect_timeout.0,
            tunnel: Bounds {
                idle: config.limits.tunnel_idle.0,
                age: config.limits.tunnel_age.0,
            },
            tunnels,
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

fn target(url: &str) -> Option<Target> {
    let uri: Uri = url.parse().ok()?;
    let base = uri.path().trim_end_matches('/').to_owned();
    let parts = uri.into_parts();
    Some(Target {
        scheme: parts.scheme?,
        authority: parts.authority?,
        base,
    })
}

impl Service<Request<Body>> for Proxy {
    type Response = Response<Body>;
    type Error = ProxyError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, ProxyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.forward(request).await })
    }
}

/// What a request is, beside its head and body.
struct Errand {
    ticket: Option<Ticket>,
    route: Option<RoutePlaces>,
    lease: Option<Lease>,
    when_lost: Option<WhenLost>,
    upgrade: Option<Wanted>,
}

impl Shared {
    async fn forward(&self, mut request: Request<Body>) -> Result<Response<Body>, ProxyError> {
        let errand = Errand::of(&mut request);
        // An effect must not begin under a lease that another may hold by now (P32).
        if errand.lease.as_ref().is_some_and(|lease| lease.is_lost()) {
            return Err(errand.not_sent(Cause::LeaseLost));
        }
        let Some(mut request) = self.outgoing(request, &errand) else {
            return Err(errand.not_sent(Cause::Unforwardable));
        };
        let client = match errand.upgrade.is_some() || self.keeps_host(request.headers()) {
            true => &self.http1,
            false => &self.client,
        };
        let place = self.place(&errand).await;
        let place = place.map_err(|cause| errand.not_sent(cause))?;
        let place = Held {
            _ticket: errand.ticket.clone(),
            _place: place,
        };
        let connection = capture_connection(&mut request);
        let answer = tokio::time::timeout(self.response_timeout, client.request(request)).await;
        let was_sent = connection.connection_metadata().is_some();
        let (error, why) = match answer {
            Ok(Ok(response)) => return Ok(held(self.answered(response, errand), place)),
            Ok(Err(error)) => (errand.failed(&error), cause_of(&error)),
            Err(_) if was_sent => (errand.sent(Cause::Timeout), "no answer in time".to_owned()),
            Err(_) => (
                errand.not_sent(Cause::Unreachable),
                "no connection in time".to_owned(),
            ),
        };
        tracing::warn!(code = error.code(), why, "no answer from the service");
        Err(error)
    }

    /// A place for a request that goes on also when its client has left; others need none.
    async fn place(&self, errand: &Errand) -> Result<Option<Places>, Cause> {
        if errand.lease.is_none() {
            return Ok(None);
        }
        let route = match &errand.route {
            None => None,
            Some(RoutePlaces(places)) => {
                let place = Arc::clone(places).acquire_owned();
                let place = tokio::time::timeout(self.place_timeout, place).await;
                let place = place.ok().and_then(Result::ok);
                Some(place.ok_or_else(|| full("max_running of the route"))?)
            }
        };
        let run = match &errand.ticket {
            None => None,
            Some(ticket) => match ticket.run(self.place_timeout).await {
                Ok(place) => Some(place),
                Err(met) if met.by == By::Process => return Err(full("limits.running")),
                Err(_) => return Err(Cause::Share),
            },
        };
        Ok(Some(Places {
            _route: route,
            _run: run,
        }))
    }

    /// The request as the service gets it; `None` where it can't be forwarded.
    fn outgoing(&self, request: Request<Body>, errand: &Errand) -> Option<Request<Body>> {
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::CONNECT {
            return None;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let target = self.targets.get(turn % self.targets.len().max(1))?;
        let rewrite = Rewrite {
            trust_forwarded: self.trust_forwarded,
            keep_host: self.keeps_host(&parts.headers),
        };
        let wanted = errand.upgrade.as_ref().map(|wanted| &wanted.protocol);
        rewrite.request(&mut parts, wanted);
        headers::say_that_there_is_a_body(&mut parts, &body);
        let body = headers::without_our_trailers(body);
        if let Some(lease) = &errand.lease {
            headers::add_lease(&mut parts.headers, lease);
        }
        crate::telemetry::trace::hand_on(&mut parts.headers);
        parts.uri = target.uri(&parts.uri)?;
        parts.version = Version::HTTP_11;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = parts.uri;
        *request.version_mut() = parts.version;
        *request.headers_mut() = parts.headers;
        Some(request)
    }

    /// Whether the service is told the client's host. Not in HTTP/2, where the authority is the connection's own, and which
    /// gRPC needs.
    fn keeps_host(&self, headers: &HeaderMap) -> bool {
        self.keep_host && !(self.may_speak_http2 && is_grpc(headers))
    }

    fn answered(&self, mut response: Response<Incoming>, errand: Errand) -> Response<Body> {
        let outcome = response.headers_mut().remove(SEMEL_OUTCOME);
        if let (Some(lease), Some(outcome)) = (&errand.lease, outcome) {
            match outcome.as_bytes() {
                b"no-effect" => lease.mark(Outcome::NoEffect),
                b"unknown" => lease.mark(Outcome::Unknown),
                _ => tracing::warn!("the service's Semel-Outcome is neither no-effect nor unknown"),
            }
        }
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = response.headers().get(http::header::UPGRADE).cloned();
        headers::strip_hop_by_hop(response.headers_mut());
        let version = response.version();
        headers::append_via(response.headers_mut(), version);
        if let (true, Some(wanted)) = (switches, errand.upgrade) {
            upgrade::join(&mut response, wanted, self.tunnel, &self.tunnels);
            upgrade::agree(response.headers_mut(), protocol);
        }
        let doubts = errand.when_lost.is_some_and(|lost| lost.doubts);
        match errand.lease.filter(|_| doubts) {
            None => response.map(Body::new),
            // An answer that breaks off half-way is lost as well.
            Some(lease) => response.map(|body| {
                Body::new(body.map_err(move |error| {
                    lease.mark(Outcome::Unknown);
                    error
                }))
            }),
        }
    }
}

impl Target {
    /// Where a request goes; `None` where it would leave the path of the service's URL.
    fn uri(&self, asked: &Uri) -> Option<Uri> {
        if !self.base.is_empty() && has_dot_segments(asked.path()) {
            return None;
        }
        let asked = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = match self.base.as_str() {
            "" => asked.parse().ok()?,
            base => format!("{base}{asked}").parse().ok()?,
        };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    }
}

impl Errand {
    fn of(request: &mut Request<Body>) -> Self {
        let lease = request.extensions().get::<Lease>().cloned();
        let wanted = headers::wanted_upgrade(request.headers());
        let upgrade = wanted.filter(|_| lease.is_none() && request.version() == Version::HTTP_11);
        Self {
            ticket: request.extensions_mut().remove(),
            route: request.extensions().get().cloned(),
            when_lost: request.extensions().get().copied(),
            upgrade: upgrade.map(|protocol| Wanted {
                protocol,
                place: request.extensions().get().cloned(),
                client: hyper::upgrade::on(request),
            }),
            lease,
        }
    }

    fn failed(&self, error: &hyper_util::client::legacy::Error) -> ProxyError {
        if error.is_connect() {
            return self.not_sent(Cause::Unreachable);
        }
        match error::client_fault(error) {
            // A request with a key was read whole before it was forwarded.
            Some(fault) if self.lease.is_none() => self.sent(Cause::Client(fault)),
            _ => self.sent(Cause::Broken),
        }
    }

    /// Nothing happened: the key is free again.
    fn not_sent(&self, cause: Cause) -> ProxyError {
        if let Some(lease) = &self.lease {
            lease.mark(Outcome::NoEffect);
        }
        let retry = Retry::Safe;
        ProxyError { cause, retry }
    }

    /// Nobody knows what happened: never as if nothing did.
    fn sent(&self, cause: Cause) -> ProxyError {
        let Some(lease) = &self.lease else {
            let retry = Retry::Unsafe;
            return ProxyError { cause, retry };
        };
        let doubts = self.when_lost.is_some_and(|lost| lost.doubts);
        let observes = self.when_lost.is_some_and(|lost| lost.observes);
        if doubts {
            lease.mark(Outcome::Unknown);
        }
        // The policy that the record was made under decides, not the one of today's settings.
        let retry = match lease.crash() {
            Some(_) if observes => Retry::Unsafe,
            Some(CrashPolicy::Hold) => Retry::InDoubt,
            Some(CrashPolicy::Takeover) if doubts => Retry::InDoubt,
            Some(CrashPolicy::Takeover) => Retry::RunsAgain,
            None => Retry::Unsafe,
        };
        ProxyError { cause, retry }
    }
}

/// The most requests with a key of one route that are with the service at a time.
#[derive(Clone, Debug)]
pub struct RoutePlaces(pub Arc<Semaphore>);

/// The places of a request that is with the service.
struct Places {
    _route: Option<OwnedSemaphorePermit>,
    _run: Option<RunPlace>,
}

/// What a request has taken.
struct Held {
    _ticket: Option<Ticket>,
    _place: Option<Places>,
}

fn full(limit: &str) -> Cause {
    tracing::warn!("{limit}: as many requests are with the service as may be");
    Cause::Full
}

/// The answer, with its request's place until it has ended.
fn held(response: Response<Body>, place: Held) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            let _until_the_body_is_dropped = &place;
            error
        }))
    })
}

/// The innermost cause: what the machine said.
fn cause_of(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
