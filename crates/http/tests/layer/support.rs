//! A server with the layer on it, and what tests say about it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use parking_lot::Mutex;
use semel::Semel;
use semel::http::{IdempotencyLayer, Route};
use semel_core::event::{Event, Observer, Step};

pub(crate) use semel_httpclient::{Answer, BOTH, Client, Protocol, Raw};

/// Counts how often handlers begin and end.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<[AtomicUsize; 2]>);

impl Runs {
    /// Begins a run; which one it is, from 1.
    pub(crate) fn begin(&self) -> usize {
        self.0[0].fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn end(&self) {
        self.0[1].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn begun(&self) -> usize {
        self.0[0].load(Ordering::SeqCst)
    }

    pub(crate) fn ended(&self) -> usize {
        self.0[1].load(Ordering::SeqCst)
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets run on real time")]
pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Waits until something is so; fails after half a minute.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if so() {
            return;
        }
        pause(10).await;
    }
    panic!("waited in vain until {what}");
}

/// Remembers every step, and who took it for which operation.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<Step>>, Mutex<Vec<Named>>);

/// Actor and operation of an event.
type Named = (Option<String>, Option<String>);

impl Observer for Log {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().push(event.step);
        let text = |text: Option<&str>| text.map(str::to_owned);
        let named = (text(event.actor), text(event.operation));
        self.1.lock().push(named);
    }
}

impl Log {
    /// Actor and operation of every event.
    pub(crate) fn named(&self) -> Vec<Named> {
        self.1.lock().clone()
    }

    pub(crate) fn count(&self, fits: impl Fn(&Step) -> bool) -> usize {
        self.0.lock().iter().filter(|step| fits(step)).count()
    }
}

/// A server with the layer on it.
pub(crate) struct Rig {
    pub(crate) semel: Semel,
    pub(crate) log: Arc<Log>,
    pub(crate) address: SocketAddr,
}

impl Rig {
    /// `router` under the layer with default settings.
    pub(crate) async fn new(router: Router) -> Self {
        Self::with(Route::new(), router).await
    }

    /// `router` under the layer, all of it treated as `route` says.
    pub(crate) async fn with(route: Route, router: Router) -> Self {
        let log = Arc::new(Log::default());
        let builder = Semel::builder().observer(Arc::clone(&log) as _);
        let semel = builder.open("memory://").await.expect("a store");
        let layer = semel.http_builder().defaults(route).build();
        let address = serve(router.layer(layer.expect("a layer"))).await;
        Self {
            semel,
            log,
            address,
        }
    }

    pub(crate) async fn client(&self, protocol: Protocol) -> Client {
        Client::connect(self.address, protocol).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        self.client(Protocol::Http1).await.send(request).await
    }

    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(self.address).await
    }
}

/// The layer with default settings on a store of its own.
pub(crate) async fn layer() -> IdempotencyLayer {
    Semel::open("memory://").await.expect("a store").http()
}

/// Serves on a free port of the loopback, HTTP/1.1 and HTTP/2.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        stream.set_nodelay(true).expect("an open connection");
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A POST of `body` with a key.
pub(crate) fn post(path: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path)
        .header("host", "test")
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    request.body(body.into()).expect("a request")
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    semel::tokio_env().clock.wall().as_micros() / 1000
}

/// A service whose every answer is the number of the run.
pub(crate) fn counting(runs: &Runs) -> Router {
    let runs = runs.clone();
    Router::new().fallback(move || async move { runs.begin().to_string() })
}

/// The same request with one more header.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    let value = value.parse().expect("a value");
    request.headers_mut().append(name, value);
    request
}

/// The same request without its key.
pub(crate) fn without_key(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().remove("idempotency-key");
    request
}
