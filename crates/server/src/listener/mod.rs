//! The listener: accepts connections within limits, negotiates TLS and HTTP, and shuts down
//! gracefully.

#![expect(clippy::disallowed_methods, reason = "a limit of real sockets")]

mod acceptor;
mod activity;
mod lifetime;
mod slots;
mod smuggling_guard;
mod unread_streams;
mod write_timeout;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use semel::http::Body;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::limits::Limiter;
use acceptor::{Acceptor, accept};
pub(crate) use slots::caller_network;
use slots::{Slot, SlotPool};
#[doc(hidden)]
pub use smuggling_guard::scan_for_ambiguity;
use unread_streams::StreamExecutor;

/// The handler of a listener's requests.
pub(crate) trait RequestHandler: Clone + Send + Sync + 'static {
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_head: usize,
    pub(crate) head_timeout: Duration,
    /// How long a write may make no progress because the client does not read.
    pub(crate) write_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) age: Duration,
}

impl Bounds {
    pub(crate) fn from_config(config: &Config) -> Self {
        let (listener, limits) = (&config.listener, &config.limits);
        Self {
            max_head: listener.max_head.bytes(),
            head_timeout: listener.head_timeout.0,
            write_timeout: listener.body_timeout.0,
            max_connections: limits.connections,
            max_connections_per_address: limits.connections_per_address,
            age: limits.connection_age.0,
        }
    }
}

/// Marks requests on connections over the limit, in their extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverLimit;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 128;

/// The maximum number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;

/// A listener that accepts connections.
pub(crate) struct RunningListener {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<ArcSwapOption<ServerConfig>>,
    stop: CancellationToken,
    cut: CancellationToken,
    accepting: tokio::task::JoinHandle<()>,
    connections: TaskTracker,
}

/// Which peers have no limit for each address, and where connections are counted.
pub(crate) struct ConnectionAccounting {
    pub(crate) trusted: Vec<ipnet::IpNet>,
    pub(crate) limiter: Option<Limiter>,
}

impl RunningListener {
    pub(crate) fn start<H: RequestHandler>(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        bounds: Bounds,
        accounting: ConnectionAccounting,
        handler: H,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let tls = Arc::new(ArcSwapOption::from(tls));
        let connections = TaskTracker::new();
        let slots = SlotPool::new(
            bounds.max_connections,
            bounds.max_connections_per_address,
            accounting.trusted,
            accounting.limiter,
        );
        let acceptor = Acceptor {
            tls: Arc::clone(&tls),
            http: Arc::new(http_settings(bounds)),
            bounds,
            clock: semel::tokio_env().clock,
            handler,
            stop: stop.clone(),
            cut: cut.clone(),
        };
        let accepting = tokio::spawn(accept(listener, acceptor, slots, connections.clone()));
        Ok(Self {
            address,
            tls,
            stop,
            cut,
            accepting,
            connections,
        })
    }

    /// Accepts no more connections, and completes when the open ones have answered their requests.
    pub(crate) async fn drain(self) {
        self.stop.cancel();
        let _ = self.accepting.await;
        self.connections.close();
        self.connections.wait().await;
    }

    /// A token that ends every connection at once.
    pub(crate) fn cut_off_token(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// A guard that stops the listener once dropped.
    pub(crate) fn stop_on_drop(&self) -> tokio_util::sync::DropGuard {
        self.stop.clone().drop_guard()
    }

    /// Accepts no more connections.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

fn http_settings(bounds: Bounds) -> auto::Builder<StreamExecutor> {
    let write_timeout = bounds.write_timeout;
    let mut http = auto::Builder::new(StreamExecutor { write_timeout });
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(bounds.max_head.max(8192));
    http.http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(bounds.max_head).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(bounds.head_timeout);
    http
}

/// The slot of a connection. A WebSocket tunnel keeps it after the task of the connection has
/// ended.
#[derive(Clone)]
pub(crate) struct ConnectionSlot(Arc<Slot>);
