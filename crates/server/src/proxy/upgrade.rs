//! WebSocket tunnels. Other upgrades are not supported: after an upgrade to HTTP/2, for example,
//! the service would get requests that bypass the idempotency layer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::listener::ConnectionSlot;

/// A client's request to upgrade the protocol.
pub(super) struct UpgradeRequest {
    pub(super) protocol: HeaderValue,
    pub(super) client: OnUpgrade,
    /// The slot of the client's connection, which the tunnel keeps.
    pub(super) slot: Option<ConnectionSlot>,
}

/// Limits on the lifetime of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelLimits {
    /// The idle timeout.
    pub(super) idle: Duration,
    /// The maximum age.
    pub(super) age: Duration,
}

/// Copies bytes between client and service until the tunnel ends.
pub(super) fn start_tunnel(
    response: &mut Response<Incoming>,
    upgrade: UpgradeRequest,
    limits: TunnelLimits,
    tunnels: &TaskTracker,
) {
    let service = hyper::upgrade::on(response);
    tunnels.spawn(async move {
        let _slot = upgrade.slot;
        let joined = tokio::try_join!(upgrade.client, service);
        let Ok((client, service)) = joined else {
            tracing::debug!("an accepted protocol upgrade failed");
            return;
        };
        let activity = Arc::new(Notify::new());
        let mut client = ActivityProbe {
            inner: TokioIo::new(client),
            activity: Arc::clone(&activity),
        };
        let mut service = TokioIo::new(service);
        let idle = async {
            while tokio::time::timeout(limits.idle, activity.notified())
                .await
                .is_ok()
            {}
        };
        let copy = tokio::io::copy_bidirectional(&mut client, &mut service);
        // A broken connection is the usual end of a tunnel.
        tokio::select! {
            _ = tokio::time::timeout(limits.age, copy) => {}
            () = idle => tracing::debug!("a tunnel was idle for limits.tunnel_idle"),
        }
    });
}

/// A connection that reports its activity.
struct ActivityProbe<I> {
    inner: I,
    activity: Arc<Notify>,
}

impl<I: AsyncRead + Unpin> AsyncRead for ActivityProbe<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_ready() {
            self.activity.notify_one();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ActivityProbe<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if written.is_ready() {
            self.activity.notify_one();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Restores the hop-by-hop headers of an accepted upgrade.
pub(super) fn set_headers(headers: &mut http::HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
    }
}
