//! A layer on a store in memory, whose time stands still; requests made of bytes.

#![allow(dead_code, reason = "each target uses some of it")]

#[cfg(feature = "server")]
pub mod queue;
#[cfg(feature = "server")]
pub mod router;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body::Body as _;
use semel_core::clock::Sleep;
use semel_core::engine::Engine;
use semel_core::env::SystemEntropy;
use semel_core::{BoxFuture, Clock, Env, MemoryConfig, MemoryStore, Spawn, Tick, Timestamp};
use semel_http::{Body, IdempotencyService, IdempotencyLayer, Route};
use tower_layer::Layer as _;
use tower_service::Service;

/// When all this happens, in seconds since 1970.
pub const NOW: u64 = 1_790_000_000;

struct Still;

impl Clock for Still {
    fn now(&self) -> Tick {
        Tick::new(Duration::ZERO)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(NOW * 1_000_000)
    }

    fn sleep(&self, _: Duration) -> Sleep {
        Box::pin(std::future::pending())
    }
}

/// Nothing here waits for anything but time, which stands still.
struct Forget;

impl Spawn for Forget {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(task);
    }
}

/// What is behind the layer: counts, and answers with what it was given.
#[derive(Clone, Default)]
pub struct Handler(Arc<AtomicUsize>);

impl Service<Request<Body>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let run = self.0.fetch_add(1, Ordering::SeqCst);
        let said = format!("{run} {} {}", request.method(), request.uri().path());
        Box::pin(async move { Ok(Response::new(Body::from(said))) })
    }
}

pub struct Rig {
    service: IdempotencyService<Handler>,
    handler: Handler,
}

impl Rig {
    pub fn new(route: Route) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(Still);
        let store = MemoryStore::new(MemoryConfig::default().with_capacity(16), Arc::clone(&clock));
        let env = Env::new(clock, Arc::new(Forget), Arc::new(SystemEntropy));
        let engine = Engine::new(Arc::new(store), env);
        let layer = IdempotencyLayer::builder(engine).defaults(route).build();
        let handler = Handler::default();
        let service = layer.expect("a layer").layer(handler.clone());
        Self { service, handler }
    }

    pub fn send(&mut self, request: &Request<Bytes>) -> Response<Body> {
        let answer = self.service.call(request.clone().map(Body::from));
        ready(answer).expect("the handler never fails")
    }

    pub fn runs(&self) -> usize {
        self.handler.0.load(Ordering::SeqCst)
    }
}

/// What needs no waiting.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// A request: a line with method and target, lines of headers, an empty one, a body.
pub fn parse(data: &[u8]) -> Option<Request<Bytes>> {
    let (head, body) = match data.windows(2).position(|two| two == b"\n\n") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, &data[..0]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let method = Method::from_bytes(&first[..space]).ok()?;
    let target = Uri::try_from(&first[space + 1..]).ok()?;
    let mut request = Request::new(Bytes::copy_from_slice(body));
    *request.method_mut() = method;
    *request.uri_mut() = target;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}

/// All of a body that is in memory.
pub fn text(response: Response<Body>) -> Vec<u8> {
    let mut body = response.into_body();
    let mut all = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        all.extend(frame.into_data().unwrap_or_default());
    }
    all
}
