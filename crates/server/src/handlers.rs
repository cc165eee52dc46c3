//! Request handlers of the listeners: main, admin, and any other router.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::header::{self, HeaderValue};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use semel::core::Code;
use semel::http::Body;
use tower::ServiceExt as _;
use tower_http::timeout::TimeoutBody;

use crate::body_pace::{BodyPace, PacedBody};
use crate::limits::{
    Caller, ExceededLimit, Limit, LimitScope, Limiter, RequestTenants, limit_response,
};
use crate::listener::{OverLimit, RequestHandler, caller_network};
use crate::proxy::is_grpc;
use crate::stack::SharedStack;
use crate::telemetry::trace::Tracing;
use crate::trust::TrustPolicy;
use crate::web::{BodyLength, SizedBody, problem_response};

/// The handler of the main listener: Semel's own paths, and everything else to the service.
#[derive(Clone)]
pub(crate) struct MainHandler {
    pub(crate) stack: SharedStack,
    pub(crate) own_paths: Vec<OwnPath>,
    pub(crate) tracing: Option<Tracing>,
    pub(crate) max_body: usize,
    pub(crate) body_timeout: Duration,
    pub(crate) pace: Option<BodyPace>,
    pub(crate) limiter: Limiter,
}

/// A path prefix that is not forwarded, and its router.
#[derive(Clone)]
pub(crate) struct OwnPath {
    pub(crate) path: Arc<str>,
    pub(crate) router: Router,
}

impl OwnPath {
    fn contains(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl RequestHandler for MainHandler {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        match &self.tracing {
            None => self.dispatch(request).await,
            Some(tracing) => {
                let trace = tracing.begin(&request);
                tracing.within(trace, self.dispatch(request)).await
            }
        }
    }
}

impl MainHandler {
    async fn dispatch(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(own) = self
            .own_paths
            .iter()
            .find(|own| own.contains(request.uri().path()))
        {
            return self.serve_own_path(own, request).await;
        }
        if request.extensions().get::<OverLimit>().is_some() {
            return limit_response(ExceededLimit::new(Limit::Connections, LimitScope::Process));
        }
        if request.body().size_hint().lower() > self.max_body as u64 {
            return too_large_response();
        }
        // Messages of a gRPC stream may be far apart.
        let is_grpc = is_grpc(request.version(), request.headers());
        let pace = self.pace.clone().filter(|_| !is_grpc);
        let bound = |body| {
            let length = BodyLength::from_body(&body);
            let timed = TimeoutBody::new(self.body_timeout, body);
            let paced = PacedBody::new(Box::pin(timed), pace);
            SizedBody::new(Limited::new(paced, self.max_body), length)
        };
        let stack = self.stack.load_full();
        stack.handle(request.map(bound)).await
    }

    /// Serves one of Semel's own paths within the limits. Health probes are always answered.
    async fn serve_own_path(
        &self,
        own: &OwnPath,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let path = request.uri().path().strip_prefix(&*own.path);
        if matches!(path, Some("/healthz" | "/readyz")) {
            return call_router(own.router.clone(), request).await;
        }
        if request.extensions().get::<OverLimit>().is_some() {
            return limit_response(ExceededLimit::new(Limit::Connections, LimitScope::Process));
        }
        let caller = address_caller(self.stack.load().client_address(&request));
        let ticket = match self.limiter.enter(caller.as_slice()) {
            Ok(ticket) => ticket,
            Err(exceeded) => return limit_response(exceeded),
        };
        // The router finds the tenant, and its limits here.
        let tenants = RequestTenants::for_request(&self.limiter, caller);
        request.extensions_mut().insert(tenants.clone());
        let response = call_router(own.router.clone(), request).await;
        keep(response, (ticket, tenants))
    }
}

fn too_large_response() -> Response<Body> {
    let detail = "the body is larger than listener.max_body; nothing was sent to the service";
    let mut response = problem_response(Code::RequestTooLarge, detail, false);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// Keeps a ticket until the response body is dropped.
fn keep<T: Send + 'static>(response: Response<Body>, ticket: T) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            let _until_the_body_is_dropped = &ticket;
            error
        }))
    })
}

/// The handler of a listener that serves one router, within the limits of the main listener.
#[derive(Clone)]
pub(crate) struct RouterHandler {
    pub(crate) router: Router,
    pub(crate) limiter: Limiter,
    pub(crate) body_timeout: Duration,
    pub(crate) pace: Option<BodyPace>,
    pub(crate) trust: Arc<TrustPolicy>,
}

impl RequestHandler for RouterHandler {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        if request.extensions().get::<OverLimit>().is_some() {
            return limit_response(ExceededLimit::new(Limit::Connections, LimitScope::Process));
        }
        let caller = address_caller(self.trust.client_address(&request));
        let ticket = match self.limiter.enter(caller.as_slice()) {
            Ok(ticket) => ticket,
            Err(exceeded) => return limit_response(exceeded),
        };
        let bound = |body| {
            let timed = TimeoutBody::new(self.body_timeout, body);
            axum::body::Body::new(PacedBody::new(Box::pin(timed), self.pace.clone()))
        };
        let answer = self.router.clone().oneshot(request.map(bound)).await;
        match answer {
            Ok(response) => keep(response.map(Body::new), ticket),
            Err(never) => match never {},
        }
    }
}

/// The caller with this address.
fn address_caller(address: Option<IpAddr>) -> Option<Caller> {
    let address = caller_network(address?);
    Some(Caller::new(LimitScope::Address, &address.to_string()))
}

/// The handler of the admin listener, without limits.
#[derive(Clone)]
pub(crate) struct AdminHandler {
    pub(crate) router: Router,
}

impl RequestHandler for AdminHandler {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        call_router(self.router.clone(), request).await
    }
}

async fn call_router(router: Router, request: Request<Incoming>) -> Response<Body> {
    let answer = router.oneshot(request).await;
    match answer {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}
