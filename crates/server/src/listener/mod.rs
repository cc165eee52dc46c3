//! Connections that come in: accepted within bounds, TLS and HTTP versions agreed on, ended gracefully.

mod guard;
mod watch;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use semel::http::{Body, ClientCertificate};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::Listener;
use crate::proxy::problem;
use crate::tls;
use guard::Guard;
#[doc(hidden)]
pub use guard::ambiguous;
use watch::FirstRequest;

/// Who is at the other end of a connection. In the extensions of every request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// Whether it has shown a certificate, and that was found good.
    pub has_certificate: bool,
    /// What its certificate calls it, where it has shown one that says.
    pub certificate_name: Option<Arc<str>>,
    /// The digest of its certificate, where it has shown one.
    pub certificate: Option<ClientCertificate>,
}

/// What answers requests.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_head: usize,
    pub(crate) head_timeout: Duration,
    pub(crate) max_connections: usize,
}

impl Bounds {
    pub(crate) fn of(listener: &Listener) -> Self {
        Self {
            max_head: listener.max_head.bytes(),
            head_timeout: listener.head_timeout.0,
            max_connections: listener.max_connections,
        }
    }
}

/// The most headers of a request.
const MAX_HEADERS: usize = 128;

/// The most requests at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;

/// A listener at work.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<ArcSwapOption<ServerConfig>>,
    stop: CancellationToken,
    cut: CancellationToken,
    accepting: tokio::task::JoinHandle<GracefulShutdown>,
}

impl Listening {
    pub(crate) fn start<A: Answer>(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        bounds: Bounds,
        answer: A,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let tls = Arc::new(ArcSwapOption::from(tls));
        let accepting = tokio::spawn(accept(
            listener,
            Door {
                tls: Arc::clone(&tls),
                http: Arc::new(http_settings(bounds)),
                bounds,
                answer,
                cut: cut.clone(),
            },
            stop.clone(),
        ));
        Ok(Self {
            address,
            tls,
            stop,
            cut,
            accepting,
        })
    }

    /// Takes no more connections, and completes when those that are there have answered what they were
    /// asked.
    pub(crate) async fn drain(self) {
        self.stop.cancel();
        if let Ok(graceful) = self.accepting.await {
            graceful.shutdown().await;
        }
    }

    /// Ends every connection at once, whatever it does.
    pub(crate) fn cutter(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// Takes no more connections.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

fn http_settings(bounds: Bounds) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
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

/// A connection's place among those that may be open. A tunnel keeps it when the connection's own task has ended.
#[derive(Clone)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "it is held")] Arc<Option<OwnedSemaphorePermit>>,
);

struct Door<A> {
    tls: Arc<ArcSwapOption<ServerConfig>>,
    http: Arc<auto::Builder<TokioExecutor>>,
    bounds: Bounds,
    answer: A,
    cut: CancellationToken,
}

impl<A: Clone> Clone for Door<A> {
    fn clone(&self) -> Self {
        Self {
            tls: Arc::clone(&self.tls),
            http: Arc::clone(&self.http),
            bounds: self.bounds,
            answer: self.answer.clone(),
            cut: self.cut.clone(),
        }
    }
}

fn tls_failed(why: &str) {
    tracing::debug!(why, "a client and this listener could not agree on TLS");
}

fn close(response: &mut Response<Body>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
}

fn two_lengths() -> Response<Body> {
    let title = "The request's length can be read in two ways";
    let detail = "send one Content-Length, or Transfer-Encoding; nothing was sent to the service";
    let mut response = problem(
        StatusCode::BAD_REQUEST,
        "request_ambiguous",
        title,
        detail,
        false,
    );
    close(&mut response);
    response
}

/// How long to leave the machine alone when it has no more file descriptors.
const BREATHE: Duration = Duration::from_millis(50);

async fn accept<A: Answer>(
    listener: TcpListener,
    door: Door<A>,
    stop: CancellationToken,
) -> GracefulShutdown {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(door.bounds.max_connections));
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&room).acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => return graceful,
        };
        match accepted {
            Ok((stream, address)) => {
                let (door, watcher) = (door.clone(), graceful.watcher());
                tokio::spawn(async move {
                    let place = Place(Arc::new(place));
                    let cut = door.cut.clone();
                    tokio::select! {
                        () = door.serve(stream, address, watcher, place) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                let _ = tokio::time::timeout(BREATHE, stop.cancelled()).await;
            }
        }
    }
}

impl<A: Answer> Door<A> {
    async fn serve(self, stream: TcpStream, address: SocketAddr, watcher: Watcher, place: Place) {
        let _ = stream.set_nodelay(true);
        let mut peer = Peer {
            address,
            is_tls: false,
            has_certificate: false,
            certificate_name: None,
            certificate: None,
        };
        let Some(config) = self.tls.load_full() else {
            return self.http(stream, peer, watcher, place).await;
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        match tokio::time::timeout(self.bounds.head_timeout, handshake).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let certificate = certificates.and_then(<[_]>::first);
                let name = certificate.and_then(tls::name_in);
                peer.is_tls = true;
                peer.has_certificate = certificate.is_some();
                peer.certificate_name = name.map(Into::into);
                peer.certificate =
                    certificate.map(|shown| ClientCertificate(blake3::hash(shown).into()));
                self.http(stream, peer, watcher, place).await;
            }
            Ok(Err(error)) => tls_failed(&error.to_string()),
            Err(_) => tls_failed("it took too long"),
        }
    }

    async fn http<I>(self, stream: I, peer: Peer, watcher: Watcher, place: Place)
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let first = FirstRequest::default();
        let guard = Guard::new(self.bounds.max_head);
        let service = service_fn(|mut request: Request<Incoming>| {
            first.came();
            let is_http1 = request.version() <= Version::HTTP_11;
            let refused = is_http1 && guard.is_ambiguous();
            let upgrades = is_http1 && request.headers().contains_key(header::UPGRADE);
            request.extensions_mut().insert(peer.clone());
            if let Some(certificate) = peer.certificate {
                request.extensions_mut().insert(certificate);
            }
            if upgrades {
                request.extensions_mut().insert(place.clone());
            }
            let answer = self.answer.clone();
            async move {
                if refused {
                    return Ok::<_, Infallible>(two_lengths());
                }
                let mut response = answer.answer(request).await;
                if upgrades && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    // The guard has stopped looking.
                    close(&mut response);
                }
                Ok(response)
            }
        });
        let io = TokioIo::new(guard.around(stream));
        let connection = self.http.serve_connection_with_upgrades(io, service);
        let connection = watcher.watch(connection);
        // hyper's own limit begins with the first byte; a client that sends none is seen here.
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended badly");
                }
            }
            () = first.overdue(self.bounds.head_timeout) => {
                tracing::debug!("a client sent no request in time");
            }
        }
    }
}
