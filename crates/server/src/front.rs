//! What answers the requests of a listener.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use semel::http::Body;
use tower::ServiceExt as _;
use tower_http::timeout::TimeoutBody;

use crate::known::{Known, Length};
use crate::limits::{By, Caller, Limit, Limiter, Met, Ticket, refused};
use crate::listener::{Answer, Overfull, Peer, of_one_caller};
use crate::paced::{Pace, Paced};
use crate::proxy::{is_grpc, problem};
use crate::stack::SharedStack;
use crate::telemetry::trace::Tracing;

/// The main listener: Semel's own paths, and everything else to the service.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) stack: SharedStack,
    pub(crate) own: Vec<Own>,
    pub(crate) tracing: Option<Tracing>,
    pub(crate) max_body: usize,
    pub(crate) body_timeout: Duration,
    pub(crate) pace: Option<Pace>,
    pub(crate) limiter: Limiter,
}

/// The paths that are not forwarded.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) path: Arc<str>,
    pub(crate) router: Router,
}

impl Own {
    fn has(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Answer for Front {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match &self.tracing {
            None => self.by_path(request).await,
            Some(tracing) => {
                let trace = tracing.begin(&request);
                tracing.within(trace, self.by_path(request)).await
            }
        }
    }
}

impl Front {
    async fn by_path(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(own) = self.own.iter().find(|own| own.has(request.uri().path())) {
            return self.by_own(own, request).await;
        }
        if request.extensions().get::<Overfull>().is_some() {
            return refused(Met::new(Limit::Connections, By::Process));
        }
        if request.body().size_hint().lower() > self.max_body as u64 {
            return too_large();
        }
        // The messages of a stream of gRPC's come when there are any.
        let pace = self.pace.clone().filter(|_| !is_grpc(request.headers()));
        let bound = |body| {
            let length = Length::of(&body);
            let timed = Paced::new(Box::pin(TimeoutBody::new(self.body_timeout, body)), pace);
            Known::new(Limited::new(timed, self.max_body), length)
        };
        let stack = self.stack.load_full();
        stack.answer(request.map(bound)).await
    }

    /// Semel's own API counts as the service's requests do, by address. Health is told to everybody.
    async fn by_own(&self, own: &Own, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().strip_prefix(&*own.path);
        if matches!(path, Some("/healthz" | "/readyz")) {
            return by_router(own.router.clone(), request).await;
        }
        if request.extensions().get::<Overfull>().is_some() {
            return refused(Met::new(Limit::Connections, By::Process));
        }
        match self.limiter.enter(caller(&request).as_slice()) {
            Ok(ticket) => held(by_router(own.router.clone(), request).await, ticket),
            Err(met) => refused(met),
        }
    }
}

fn too_large() -> Response<Body> {
    let title = "The request's body is too large";
    let detail = "the body has more bytes than are taken; nothing was sent to the service";
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    let mut response = problem(status, "request_too_large", title, detail, false);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// The answer, which has its ticket until it has ended.
fn held(response: Response<Body>, ticket: Ticket) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            let _until_the_body_is_dropped = &ticket;
            error
        }))
    })
}

/// A listener for a router of another's making, with the bounds of the main one.
#[derive(Clone)]
pub(crate) struct RouterFront {
    pub(crate) router: Router,
    pub(crate) limiter: Limiter,
    pub(crate) body_timeout: Duration,
    pub(crate) pace: Option<Pace>,
}

impl Answer for RouterFront {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.extensions().get::<Overfull>().is_some() {
            return refused(Met::new(Limit::Connections, By::Process));
        }
        let ticket = match self.limiter.enter(caller(&request).as_slice()) {
            Ok(ticket) => ticket,
            Err(met) => return refused(met),
        };
        let bound = |body| {
            let timed = TimeoutBody::new(self.body_timeout, body);
            axum::body::Body::new(Paced::new(Box::pin(timed), self.pace.clone()))
        };
        let answer = self.router.clone().oneshot(request.map(bound)).await;
        match answer {
            Ok(response) => held(response.map(Body::new), ticket),
            Err(never) => match never {},
        }
    }
}

/// Whose request it is, by its address.
fn caller<B>(request: &Request<B>) -> Option<Caller> {
    let peer = request.extensions().get::<Peer>()?;
    let address = of_one_caller(peer.address.ip());
    Some(Caller::new(By::Address, &address.to_string()))
}

/// The admin listener: a router and nothing else.
#[derive(Clone)]
pub(crate) struct AdminFront {
    pub(crate) router: Router,
}

impl Answer for AdminFront {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        by_router(self.router.clone(), request).await
    }
}

async fn by_router(router: Router, request: Request<Incoming>) -> Response<Body> {
    let answer = router.oneshot(request).await;
    match answer {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}
