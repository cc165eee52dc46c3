//! A service, and a sidecar in front of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use semel::Semel;
use semel::core::State;
use semel::core::store::Query;
use semel_server::config::{Loaded, Sources, load};
use semel_server::{Mounts, OpenOptions, Server};
use semel_testkit::private::new_folder;

pub(crate) use semel_httpclient::{Answer, BOTH, Client, Protocol, Raw};

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
        Self::of(start(&file).await, file)
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
        Self::of(start_node(&file).await, file)
    }

    fn of((server, semel): (Server, Semel), file: PathBuf) -> Self {
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
        let query = Query::default().with_state(state);
        let page = self.semel.store().list(&query).await.expect("a listing");
        let own = |scope: &str| scope.starts_with("semel");
        page.records
            .iter()
            .filter(|(_, record)| !own(record.namespace.scope()))
            .count()
    }
}

/// The settings of a file.
fn loaded(file: &Path) -> Loaded {
    let sources = Sources {
        file: Some(file.to_owned()),
        ..Sources::default()
    };
    load(&sources).unwrap_or_else(|findings| panic!("{findings}"))
}

/// Starts a server with the settings of a file: the sidecar alone.
pub(crate) async fn start(file: &Path) -> (Server, Semel) {
    let loaded = loaded(file);
    let semel = OpenOptions::for_tool(&loaded.config).open_store().await;
    let semel = semel.expect("a store");
    let server = Server::start(loaded, semel.clone(), Mounts::default()).await;
    (server.unwrap_or_else(|error| panic!("{error}")), semel)
}

/// Starts a server with the settings of a file: the sidecar, and the APIs that they ask for.
pub(crate) async fn start_node(file: &Path) -> (Server, Semel) {
    let loaded = loaded(file);
    let opened = OpenOptions::for_node(&loaded.config).open().await;
    let opened = opened.unwrap_or_else(|error| panic!("{error}"));
    let mounts = opened.mounts(&loaded.config).expect("usable tokens");
    let server = Server::start(loaded, opened.semel.clone(), mounts).await;
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    (server, opened.semel)
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
