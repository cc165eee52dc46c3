//! A service, a sidecar in front of it, and clients for HTTP/1.1, HTTP/2 and raw bytes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use semel::Semel;
use semel::core::State;
use semel::core::store::Query;
use semel_server::config::{Loaded, Sources, load};
use semel_server::{Mounts, OpenOptions, Server};
use semel_testkit::private::new_folder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Counts the effects of a service.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// Counts an effect, and returns its number from 1.
    pub(crate) fn begin(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets run on real time")]
pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Waits for a condition, at most ten seconds.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        pause(10).await;
    }
    panic!("waited in vain until {what}");
}

/// Starts a service on a free loopback port, with HTTP/1.1 and HTTP/2.
pub(crate) async fn service(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A sidecar.
pub(crate) struct Sidecar {
    pub(crate) server: Server,
    pub(crate) semel: Semel,
    pub(crate) address: SocketAddr,
    pub(crate) file: PathBuf,
}

impl Sidecar {
    /// Starts a sidecar in front of `upstream` with these settings, on a store in memory.
    pub(crate) async fn new(upstream: SocketAddr, settings: &str) -> Self {
        Self::on("memory://", &format!("http://{upstream}"), settings).await
    }

    pub(crate) async fn on(store: &str, upstream: &str, settings: &str) -> Self {
        let file = new_folder("sidecar").join("semel.toml");
        write(&file, store, upstream, settings);
        let sources = Sources {
            file: Some(file.clone()),
            ..Sources::default()
        };
        let loaded = load(&sources).unwrap_or_else(|findings| panic!("{findings}"));
        let semel = OpenOptions::for_tool(&loaded.config)
            .open_store()
            .await
            .expect("a store");
        Self::start(loaded, semel, Mounts::default(), file).await
    }

    /// Starts a sidecar with the protocol API and the jobs API. Each tenant has a token of its own:
    /// [`token_of`].
    pub(crate) async fn with_apis(store: &str, upstream: SocketAddr, settings: &str) -> Self {
        let folder = new_folder("sidecar");
        let tokens = ["acme", "other"].map(|tenant| {
            let digest = blake3::hash(token_of(tenant).as_bytes()).to_hex();
            format!(
                "[[token]]\nname = \"{tenant}\"\ntoken = \"blake3:{digest}\"\ntenant = \"{tenant}\"\n"
            )
        });
        std::fs::write(folder.join("tokens"), tokens.concat()).expect("a file");
        let file = folder.join("semel.toml");
        let access = format!(
            "api.access = \"tokens\"\napi.tokens_file = \"{}\"\n",
            folder.join("tokens").display()
        );
        write(
            &file,
            store,
            &format!("http://{upstream}"),
            &(access + settings),
        );
        let sources = Sources {
            file: Some(file.clone()),
            ..Sources::default()
        };
        let loaded = load(&sources).unwrap_or_else(|findings| panic!("{findings}"));
        let opened = OpenOptions::for_node(&loaded.config).open().await;
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        let mounts = opened.mounts(&loaded.config).expect("usable tokens");
        Self::start(loaded, opened.semel.clone(), mounts, file).await
    }

    async fn start(loaded: Loaded, semel: Semel, mounts: Mounts, file: PathBuf) -> Self {
        let server = Server::start(loaded, semel.clone(), mounts).await;
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        Self {
            address: server.address(),
            server,
            semel,
            file,
        }
    }

    pub(crate) async fn client(&self, protocol: Protocol) -> Client {
        Client::connect(self.address, protocol).await
    }

    /// Sends one request on a new connection.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        self.client(Protocol::Http1).await.send(request).await
    }

    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(self.address).await
    }

    /// The number of keys in a state, without those of the self-check.
    pub(crate) async fn keys(&self, state: State) -> usize {
        let query = Query {
            state: Some(state),
            ..Query::default()
        };
        let page = self.semel.store().list(&query).await.expect("a listing");
        let own = |scope: &str| scope.starts_with("semel");
        page.records
            .iter()
            .filter(|(_, record)| !own(record.namespace.scope()))
            .count()
    }
}

/// The token of a tenant in the APIs.
pub(crate) fn token_of(tenant: &str) -> String {
    format!("the-token-of-{tenant}")
}

/// Rewrites the configuration file.
pub(crate) fn write(file: &PathBuf, store: &str, upstream: &str, settings: &str) {
    let urls = match upstream {
        "" => String::new(),
        url => format!("\"{url}\""),
    };
    // Top-level settings come before the first table.
    let ends = format!(
        "store.url = \"{store}\"\nupstream.urls = [{urls}]\nlistener.address = \"127.0.0.1:0\"\n"
    );
    std::fs::write(file, ends + settings).expect("a file");
}

/// A POST of `body` with a key.
pub(crate) fn post(path: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path)
        .header("host", "shop.test")
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    request.body(body.into()).expect("a request")
}

/// A request without a key.
pub(crate) fn plain(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "shop.test");
    request.body(body.into()).expect("a request")
}

/// Adds a header to a request.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    let value = value.parse().expect("a value");
    request.headers_mut().append(name, value);
    request
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// A client connection.
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

    /// The status, the code and `retryable` of a problem document.
    pub(crate) fn problem(&self) -> (u16, String, bool) {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        let code = document["code"].as_str().expect("a code");
        let retryable = document["retryable"].as_bool().expect("a truth");
        (self.status.as_u16(), code.to_owned(), retryable)
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, protocol: Protocol) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an open connection");
        Self::over(stream, protocol).await
    }

    pub(crate) async fn over<S>(stream: S, protocol: Protocol) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
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

    pub(crate) async fn begin(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Response<hyper::body::Incoming> {
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await.expect("the connection lives");
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                let (mut parts, body) = request.into_parts();
                // In HTTP/2 the authority is part of the request target.
                parts.headers.remove("host");
                parts.uri = format!("http://shop.test{}", parts.uri)
                    .parse()
                    .expect("a URI");
                sender.send_request(Request::from_parts(parts, body)).await
            }
        };
        response.expect("a response")
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Answer {
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

/// A raw connection.
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
        // The server may have closed the connection already.
        let _ = self.stream.write_all(text.as_bytes()).await;
    }

    /// Reads until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await.is_some() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// Reads up to the end of `text`.
    pub(crate) async fn read_to(&mut self, text: &str) -> String {
        loop {
            let so_far = String::from_utf8_lossy(&self.read).into_owned();
            if let Some(at) = so_far.find(text) {
                let end = at + text.len();
                self.read.drain(..end);
                return so_far[..end].to_owned();
            }
            assert!(self.more().await.is_some(), "hung up after {so_far:?}");
        }
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer);
        let limit = Duration::from_secs(10);
        let count = tokio::time::timeout(limit, read).await.expect("in time");
        let count = count.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        (count > 0).then_some(())
    }
}
