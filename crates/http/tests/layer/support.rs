//! A server with the layer on it, and clients that speak HTTP/1.1, HTTP/2 and raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use semel::Semel;
use semel::http::{IdempotencyLayer, Route};
use semel_core::event::{Event, Observer, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

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

/// Waits until something is so; fails after five seconds.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..500 {
        if so() {
            return;
        }
        pause(10).await;
    }
    panic!("waited in vain until {what}");
}

/// Remembers every step.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<Step>>);

impl Observer for Log {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().push(event.step);
    }
}

impl Log {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// One connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status and code of a problem document.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        let code = document["code"].as_str().expect("a code");
        (self.status.as_u16(), code.to_owned())
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, protocol: Protocol) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an open connection");
        let io = TokioIo::new(stream);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await.expect("HTTP/1.1");
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            Protocol::Http2 => {
                let made = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = made.expect("HTTP/2");
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        }
    }

    /// Another handle on the same HTTP/2 connection.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Http1(_) => panic!("HTTP/1.1 takes one request at a time"),
            Self::Http2(sender) => Self::Http2(sender.clone()),
        }
    }

    pub(crate) async fn begin(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Response<hyper::body::Incoming> {
        let response = match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => {
                let (mut parts, body) = request.into_parts();
                // The authority is a part of the request's target there.
                parts.headers.remove("host");
                parts.uri = format!("http://test{}", parts.uri).parse().expect("a URI");
                sender.send_request(Request::from_parts(parts, body)).await
            }
        };
        response.expect("a response")
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Answer {
        if let Self::Http1(sender) = self {
            sender.ready().await.expect("the connection lives");
        }
        let (parts, body) = self.begin(request).await.into_parts();
        let collected = body.collect().await.expect("a whole body");
        let trailers = collected.trailers().cloned();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: collected.to_bytes(),
            trailers,
        }
    }
}

/// A connection on which a test writes what it likes.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(crate) async fn write(&mut self, text: &str) {
        let written = self.stream.write_all(text.as_bytes()).await;
        written.expect("the server reads");
    }

    /// The next head, as text, and its body by its Content-Length. `None` where the server hung up.
    pub(crate) async fn answer(&mut self) -> Option<(String, String)> {
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
                let all = end + 4 + length;
                while self.read.len() < all {
                    self.more().await?;
                }
                let body = String::from_utf8_lossy(&self.read[end + 4..all]).into_owned();
                self.read.drain(..all);
                return Some((head, body));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer);
        let limit = Duration::from_secs(5);
        let count = tokio::time::timeout(limit, read).await.expect("in time");
        let count = count.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        (count > 0).then_some(())
    }

    /// Whether the server hangs up, sooner or later, without another word.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && self.more().await.is_none()
    }
}
