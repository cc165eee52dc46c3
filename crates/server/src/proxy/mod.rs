//! The reverse proxy: forwards requests to the service behind the idempotency layer.
//!
//! | file | is |
//! |---|---|
//! | `context` | the lease and limits of a request, and what an error means for its key |
//! | `headers` | which headers are forwarded, removed and added |
//! | `connect`, `target` | connections to the service; its URLs |
//! | `upgrade` | WebSocket tunnels |
//! | `error` | errors of forwarding, and whether a retry is safe |

#![expect(clippy::disallowed_methods, reason = "a limit of real sockets")]

mod connect;
mod context;
mod error;
mod headers;
mod target;
mod upgrade;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HeaderMap;
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use rustls::ClientConfig;
use semel::http::{Body, EffectOutcome};
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::config::{Config, Host, Protocol};
use crate::limits::LimitScope;
pub(crate) use connect::{UpstreamClient, build_client};
use context::{ForwardContext, ForwardPermits, RunPermits};
pub use context::{LostAnswerPolicy, RouteConcurrency};
pub(crate) use error::is_grpc;
pub use error::{Cause, ClientFault, ProxyError, Retry, SEMEL_OUTCOME};
use headers::Rewrite;
pub use headers::{SEMEL_ATTEMPT, SEMEL_DOWNSTREAM_KEY, SEMEL_FENCE};
use target::Target;
use upgrade::TunnelLimits;

/// Forwards requests to the service. Cheap to clone.
#[derive(Clone)]
pub struct UpstreamProxy {
    shared: Arc<Shared>,
}

struct Shared {
    targets: Vec<Target>,
    next: AtomicUsize,
    client: UpstreamClient,
    /// For requests that upgrade the protocol or keep their host, which needs HTTP/1.1.
    http1: UpstreamClient,
    trust_forwarded: bool,
    keep_host: bool,
    /// Whether a target has TLS, which can negotiate HTTP/2 for gRPC.
    may_speak_http2: bool,
    /// Whether a target speaks HTTP/2, where trailers can follow a body of known length.
    has_http2_trailers: bool,
    response_timeout: Duration,
    permit_timeout: Duration,
    tunnel: TunnelLimits,
    tunnels: TaskTracker,
}

impl std::fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<&str> = self
            .shared
            .targets
            .iter()
            .map(|target| target.authority.host())
            .collect();
        write!(f, "UpstreamProxy({})", hosts.join(", "))
    }
}

impl UpstreamProxy {
    /// A proxy with these settings. `tunnels` gets the tasks of WebSocket tunnels.
    #[must_use]
    pub fn new(config: &Config, tls: &ClientConfig, tunnels: TaskTracker) -> Self {
        let upstream = &config.upstream;
        let urls = upstream.urls.iter();
        let targets: Vec<Target> = urls.filter_map(|url| Target::parse(url)).collect();
        let may_speak_http2 = targets.iter().any(|target| target.scheme == Scheme::HTTPS);
        let shared = Shared {
            may_speak_http2,
            has_http2_trailers: may_speak_http2 || upstream.protocol == Protocol::H2c,
            targets,
            next: AtomicUsize::new(0),
            client: connect::build_client(upstream, upstream.protocol, tls),
            http1: connect::build_client(upstream, Protocol::Http1, tls),
            trust_forwarded: config.listener.trust_forwarded,
            keep_host: upstream.host == Host::Client && upstream.protocol != Protocol::H2c,
            response_timeout: upstream.response_timeout.0,
            permit_timeout: upstream.connect_timeout.0,
            tunnel: TunnelLimits {
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

impl Service<Request<Body>> for UpstreamProxy {
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

impl Shared {
    async fn forward(&self, mut request: Request<Body>) -> Result<Response<Body>, ProxyError> {
        let context = ForwardContext::take_from(&mut request);
        // An effect must not begin under a lease that another may hold by now (P32).
        if context.lease.as_ref().is_some_and(|lease| lease.is_lost()) {
            return Err(context.not_sent(Cause::LeaseLost));
        }
        let keep_host = self.keeps_host(request.version(), request.headers());
        let Some(mut request) = self.build_request(request, &context, keep_host) else {
            return Err(context.not_sent(Cause::Unforwardable));
        };
        let client = match context.upgrade.is_some() || keep_host {
            true => &self.http1,
            false => &self.client,
        };
        let run = self.acquire_permits(&context).await;
        let run = run.map_err(|cause| context.not_sent(cause))?;
        let permits = ForwardPermits {
            _ticket: context.ticket.clone(),
            _run: run,
        };
        let connection = capture_connection(&mut request);
        let answer = tokio::time::timeout(self.response_timeout, client.request(request)).await;
        let was_sent = connection.connection_metadata().is_some();
        let (error, why) = match answer {
            Ok(Ok(response)) => {
                return Ok(keep_permits(
                    self.finish_response(response, context),
                    permits,
                ));
            }
            Ok(Err(error)) => (context.classify_error(&error), root_cause(&error)),
            Err(_) if was_sent => (
                context.sent(Cause::Timeout),
                "no response in time".to_owned(),
            ),
            Err(_) => (
                context.not_sent(Cause::Unreachable),
                "no connection in time".to_owned(),
            ),
        };
        tracing::warn!(
            code = error.code().as_str(),
            why,
            "the service did not answer"
        );
        Err(error)
    }

    /// Waits for the permits of a request with a key. Other requests need none.
    async fn acquire_permits(&self, context: &ForwardContext) -> Result<Option<RunPermits>, Cause> {
        if context.lease.is_none() {
            return Ok(None);
        }
        let route = match &context.route {
            None => None,
            Some(RouteConcurrency(permits)) => {
                let permit = Arc::clone(permits).acquire_owned();
                let permit = tokio::time::timeout(self.permit_timeout, permit).await;
                let permit = permit.ok().and_then(Result::ok);
                Some(permit.ok_or_else(|| log_full("max_running of the route"))?)
            }
        };
        let run = match &context.ticket {
            None => None,
            Some(ticket) => match ticket.acquire_run(self.permit_timeout).await {
                Ok(permit) => Some(permit),
                Err(exceeded) if exceeded.by == LimitScope::Process => {
                    return Err(log_full("limits.running"));
                }
                Err(_) => return Err(Cause::Share),
            },
        };
        Ok(Some(RunPermits {
            _route: route,
            _run: run,
        }))
    }

    /// The request for the service; `None` if it cannot be forwarded.
    fn build_request(
        &self,
        request: Request<Body>,
        context: &ForwardContext,
        keep_host: bool,
    ) -> Option<Request<Body>> {
        let (mut parts, body) = request.into_parts();
        // TRACE would send the credentials of the request back.
        if matches!(parts.method, Method::CONNECT | Method::TRACE) {
            return None;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let target = self.targets.get(turn % self.targets.len().max(1))?;
        let rewrite = Rewrite {
            trust_forwarded: self.trust_forwarded,
            keep_host,
        };
        let upgrade = context.upgrade.as_ref();
        rewrite.apply(&mut parts, upgrade.map(|upgrade| &upgrade.protocol));
        headers::force_chunked_for_get_body(&mut parts, &body);
        let body = headers::remove_semel_trailers(body, self.has_http2_trailers);
        if let Some(lease) = &context.lease {
            headers::set_lease_headers(&mut parts.headers, lease);
        }
        crate::telemetry::trace::inject_trace_context(&mut parts.headers);
        parts.uri = target.uri(&parts.uri)?;
        parts.version = Version::HTTP_11;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = parts.uri;
        *request.version_mut() = parts.version;
        *request.headers_mut() = parts.headers;
        Some(request)
    }

    /// Whether the service gets the client's host. HTTP/2, which gRPC needs, sends the authority of
    /// the connection instead.
    fn keeps_host(&self, version: Version, headers: &HeaderMap) -> bool {
        self.keep_host && !(self.may_speak_http2 && is_grpc(version, headers))
    }

    fn finish_response(
        &self,
        mut response: Response<Incoming>,
        context: ForwardContext,
    ) -> Response<Body> {
        let outcome = response.headers_mut().remove(SEMEL_OUTCOME);
        if let (Some(lease), Some(outcome)) = (&context.lease, outcome) {
            match outcome.as_bytes() {
                b"no-effect" => lease.mark(EffectOutcome::NoEffect),
                b"unknown" => lease.mark(EffectOutcome::Unknown),
                _ => tracing::warn!(
                    "the service sent an unknown Semel-Outcome; expected no-effect or unknown"
                ),
            }
        }
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = response.headers().get(http::header::UPGRADE).cloned();
        headers::remove_hop_by_hop(response.headers_mut());
        let version = response.version();
        headers::append_via(response.headers_mut(), version);
        if let (true, Some(upgrade)) = (switches, context.upgrade) {
            upgrade::start_tunnel(&mut response, upgrade, self.tunnel, &self.tunnels);
            upgrade::set_headers(response.headers_mut(), protocol);
        }
        let doubts = context.lost_answer.is_some_and(|lost| lost.doubts);
        match context.lease.filter(|_| doubts) {
            None => response.map(Body::new),
            // A response that breaks off is lost as well.
            Some(lease) => response.map(|body| {
                Body::new(body.map_err(move |error| {
                    lease.mark(EffectOutcome::Unknown);
                    error
                }))
            }),
        }
    }
}

fn log_full(limit: &str) -> Cause {
    tracing::warn!("{limit}: the limit of concurrent requests at the service is reached");
    Cause::Full
}

/// Keeps the permits until the response body is dropped.
fn keep_permits(response: Response<Body>, permits: ForwardPermits) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            let _until_the_body_is_dropped = &permits;
            error
        }))
    })
}

/// The message of the innermost cause.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
