//! What answers the requests of a listener.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::Limited;
use hyper::body::Incoming;
use semel::http::Body;
use tower::ServiceExt as _;
use tower_http::timeout::TimeoutBody;

use crate::known::{Known, Length};
use crate::listener::Answer;
use crate::proxy::problem;
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
            return by_router(own.router.clone(), request).await;
        }
        if request.body().size_hint().lower() > self.max_body as u64 {
            return too_large();
        }
        let bound = |body| {
            let length = Length::of(&body);
            let timed = TimeoutBody::new(self.body_timeout, body);
            Known::new(Limited::new(timed, self.max_body), length)
        };
        let stack = self.stack.load_full();
        stack.answer(request.map(bound)).await
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
