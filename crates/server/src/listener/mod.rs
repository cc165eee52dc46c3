//! Connections that come in: accepted within bounds, TLS and HTTP versions agreed on, ended gracefully.

mod drive;
mod guard;
mod pace;
mod room;
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
use rustls::ServerConfig;
use semel::http::{Body, ClientCertificate};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::limits::Limiter;
use crate::proxy::problem;
use crate::tls;
use drive::{briefly, drive};
use guard::Guard;
#[doc(hidden)]
pub use guard::ambiguous;
use pace::Paced;
pub(crate) use room::of_one_caller;
use room::{Room, Taken};
use watch::Requests;

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
    /// How long a client may read nothing.
    pub(crate) write_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) age: Duration,
}

impl Bounds {
    pub(crate) fn of(config: &Config) -> Self {
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

/// In the extensions of requests that came when there were as many connections as may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overfull;

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
    accepting: tokio::task::JoinHandle<()>,
    connections: TaskTracker,
}

/// Who is counted how.
pub(crate) struct Counted {
    pub(crate) trusted: Vec<ipnet::IpNet>,
    pub(crate) limiter: Option<Limiter>,
}

impl Listening {
    pub(crate) fn start<A: Answer>(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        bounds: Bounds,
        counted: Counted,
        answer: A,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let tls = Arc::new(ArcSwapOption::from(tls));
        let connections = TaskTracker::new();
        let room = Room::new(
            bounds.max_connections,
            bounds.max_connections_per_address,
            counted.trusted,
            counted.limiter,
        );
        let door = Door {
            tls: Arc::clone(&tls),
            http: Arc::new(http_settings(bounds)),
            bounds,
            answer,
            stop: stop.clone(),
            cut: cut.clone(),
        };
        let accepting = tokio::spawn(accept(listener, door, room, connections.clone()));
        Ok(Self {
            address,
            tls,
            stop,
            cut,
            accepting,
            connections,
        })
    }

    /// Takes no more connections, and completes when those that are there have answered what they were
    /// asked.
    pub(crate) async fn drain(self) {
        self.stop.cancel();
        let _ = self.accepting.await;
        self.connections.close();
        self.connections.wait().await;
    }

    /// Ends every connection at once, whatever it does.
    pub(crate) fn cutter(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// Takes no more connections once this is dropped.
    pub(crate) fn until_dropped(&self) -> tokio_util::sync::DropGuard {
        self.stop.clone().drop_guard()
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
pub(crate) struct Place(Arc<Taken>);

struct Door<A> {
    tls: Arc<ArcSwapOption<ServerConfig>>,
    http: Arc<auto::Builder<TokioExecutor>>,
    bounds: Bounds,
    answer: A,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl<A: Clone> Clone for Door<A> {
    fn clone(&self) -> Self {
        Self {
            tls: Arc::clone(&self.tls),
            http: Arc::clone(&self.http),
            bounds: self.bounds,
            answer: self.answer.clone(),
            stop: self.stop.clone(),
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
    room: Arc<Room>,
    connections: TaskTracker,
) {
    let stop = door.stop.clone();
    loop {
        let next = async { (room.free().await, listener.accept().await) };
        let (free, accepted) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let place = free.and_then(|free| room.take(free, address.ip()));
                let Some(place) = place else { continue };
                let door = door.clone();
                connections.spawn(async move {
                    let place = Place(Arc::new(place));
                    let cut = door.cut.clone();
                    tokio::select! {
                        () = door.serve(stream, address, place) => {}
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
    async fn serve(self, stream: TcpStream, address: SocketAddr, place: Place) {
        let _ = stream.set_nodelay(true);
        let mut peer = Peer {
            address,
            is_tls: false,
            has_certificate: false,
            certificate_name: None,
            certificate: None,
        };
        let Some(config) = self.tls.load_full() else {
            return self.http(stream, peer, place).await;
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
                self.http(stream, peer, place).await;
            }
            Ok(Err(error)) => tls_failed(&error.to_string()),
            Err(_) => tls_failed("it took too long"),
        }
    }

    async fn http<I>(self, stream: I, peer: Peer, place: Place)
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, bounds) = (Requests::default(), self.bounds);
        let guard = Guard::new(bounds.max_head);
        let is_more = place.0.is_more;
        let service = service_fn(|mut request: Request<Incoming>| {
            let under_way = requests.came(request.version());
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
            if is_more {
                request.extensions_mut().insert(Overfull);
            }
            let answer = self.answer.clone();
            async move {
                if refused {
                    return Ok::<_, Infallible>(two_lengths());
                }
                let mut response = answer.answer(request).await;
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                if is_http1 && (is_more || upgrades && !switches) {
                    // The guard has stopped looking; or the place isn't one to stay at.
                    close(&mut response);
                }
                Ok(match under_way {
                    Some(under_way) => under_way.until_the_end_of(response),
                    None => response,
                })
            }
        });
        let io = TokioIo::new(Paced::new(guard.around(stream), bounds.write_timeout));
        let connection = self.http.serve_connection_with_upgrades(io, service);
        match is_more {
            true => briefly(connection).await,
            false => drive(connection, &requests, bounds, &self.stop).await,
        }
    }
}
