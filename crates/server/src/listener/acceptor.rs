//! [`Acceptor`]: accepts connections, and serves TLS and HTTP on them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use semel::core::{Clock, Code};
use semel::http::{Body, ClientCertificate};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::ConnectionActivity;
use super::lifetime::{OVER_LIMIT_TIMEOUT, serve_briefly, serve_connection};
use super::slots::SlotPool;
use super::smuggling_guard::SmugglingGuard;
use super::unread_streams::StreamExecutor;
use super::write_timeout::WriteTimeout;
use super::{Bounds, ConnectionSlot, OverLimit, RequestHandler};
use crate::tls;
use crate::web::{Peer, problem_response};

/// Accepts connections and serves them.
pub(super) struct Acceptor<H> {
    pub(super) tls: Arc<ArcSwapOption<ServerConfig>>,
    pub(super) http: Arc<auto::Builder<StreamExecutor>>,
    pub(super) bounds: Bounds,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) handler: H,
    pub(super) stop: CancellationToken,
    pub(super) cut: CancellationToken,
}

impl<H: Clone> Clone for Acceptor<H> {
    fn clone(&self) -> Self {
        Self {
            tls: Arc::clone(&self.tls),
            http: Arc::clone(&self.http),
            bounds: self.bounds,
            clock: Arc::clone(&self.clock),
            handler: self.handler.clone(),
            stop: self.stop.clone(),
            cut: self.cut.clone(),
        }
    }
}

fn log_tls_failure(why: &str) {
    tracing::debug!(why, "the TLS handshake with a client failed");
}

fn set_connection_close(response: &mut Response<Body>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
}

fn ambiguous_length_response() -> Response<Body> {
    let detail =
        "send either one Content-Length or one Transfer-Encoding; nothing was sent to the service";
    let mut response = problem_response(Code::RequestAmbiguous, detail, false);
    set_connection_close(&mut response);
    response
}

/// The pause after an accept error, for example when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the listener stops.
pub(super) async fn accept<H: RequestHandler>(
    listener: TcpListener,
    acceptor: Acceptor<H>,
    slots: Arc<SlotPool>,
    connections: TaskTracker,
) {
    let stop = acceptor.stop.clone();
    loop {
        let next = async { (slots.wait_for_slot().await, listener.accept().await) };
        let (free, accepted) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let slot = free.and_then(|free| slots.assign(free, address.ip()));
                let Some(slot) = slot else { continue };
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let slot = ConnectionSlot(Arc::new(slot));
                    let (cut, evicted) = (acceptor.cut.clone(), slot.0.evicted());
                    tokio::select! {
                        () = acceptor.serve(stream, address, slot) => {}
                        () = cut.cancelled() => {}
                        () = evicted.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                let _ = tokio::time::timeout(ACCEPT_PAUSE, stop.cancelled()).await;
            }
        }
    }
}

impl<H: RequestHandler> Acceptor<H> {
    async fn serve(self, stream: TcpStream, address: SocketAddr, slot: ConnectionSlot) {
        let _ = stream.set_nodelay(true);
        let mut peer = Peer {
            address,
            is_tls: false,
            has_certificate: false,
            certificate_name: None,
            certificate: None,
        };
        let Some(config) = self.tls.load_full() else {
            return self.serve_http(stream, peer, slot).await;
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        let limit = match slot.0.is_over_limit {
            true => OVER_LIMIT_TIMEOUT,
            false => self.bounds.head_timeout,
        };
        match tokio::time::timeout(limit, handshake).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let certificate = certificates.and_then(<[_]>::first);
                let name = certificate.and_then(tls::read_name);
                peer.is_tls = true;
                peer.has_certificate = certificate.is_some();
                peer.certificate_name = name.map(Into::into);
                peer.certificate =
                    certificate.map(|bytes| ClientCertificate(blake3::hash(bytes).into()));
                self.serve_http(stream, peer, slot).await;
            }
            Ok(Err(error)) => log_tls_failure(&error.to_string()),
            Err(_) => log_tls_failure("it took too long"),
        }
    }

    async fn serve_http<I>(self, stream: I, peer: Peer, slot: ConnectionSlot)
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (activity, bounds) = (
            ConnectionActivity::new(Arc::clone(&self.clock)),
            self.bounds,
        );
        let guard = SmugglingGuard::new(bounds.max_head);
        let is_over_limit = slot.0.is_over_limit;
        let service = service_fn(|mut request: Request<Incoming>| {
            let active = activity.begin_request(request.version());
            let is_http1 = request.version() <= Version::HTTP_11;
            let refused = is_http1 && guard.is_ambiguous();
            let upgrades = is_http1 && request.headers().contains_key(header::UPGRADE);
            request.extensions_mut().insert(peer.clone());
            if let Some(certificate) = peer.certificate {
                request.extensions_mut().insert(certificate);
            }
            if upgrades {
                request.extensions_mut().insert(slot.clone());
            }
            if is_over_limit {
                slot.0.keep();
                request.extensions_mut().insert(OverLimit);
            }
            let handler = self.handler.clone();
            async move {
                if refused {
                    return Ok::<_, Infallible>(ambiguous_length_response());
                }
                let mut response = handler.handle(request).await;
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                if is_http1 && (is_over_limit || upgrades && !switches) {
                    // The guard no longer scans this connection, or the connection is over the
                    // limit.
                    set_connection_close(&mut response);
                }
                Ok(match active {
                    Some(active) => active.attach_to(response),
                    None => response,
                })
            }
        });
        let io = TokioIo::new(WriteTimeout::new(guard.wrap(stream), bounds.write_timeout));
        let connection = self.http.serve_connection_with_upgrades(io, service);
        match is_over_limit {
            true => serve_briefly(connection).await,
            false => serve_connection(connection, &activity, bounds, &self.stop).await,
        }
    }
}
