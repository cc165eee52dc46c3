//! Requests that change the protocol to WebSocket. To no other: a service that changes to HTTP/2, say, would get requests
//! that nobody here has seen.

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

use crate::listener::Place;

/// A client that wants to change the protocol.
pub(super) struct Wanted {
    pub(super) protocol: HeaderValue,
    pub(super) client: OnUpgrade,
    /// Its place among the connections, which it keeps.
    pub(super) place: Option<Place>,
}

/// How long a tunnel may be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// While nothing passes.
    pub(super) idle: Duration,
    /// In all.
    pub(super) age: Duration,
}

/// Joins the two connections, from here on without a look at what passes.
pub(super) fn join(
    response: &mut Response<Incoming>,
    wanted: Wanted,
    bounds: Bounds,
    tunnels: &TaskTracker,
) {
    let service = hyper::upgrade::on(response);
    tunnels.spawn(async move {
        let _place = wanted.place;
        let joined = tokio::try_join!(wanted.client, service);
        let Ok((client, service)) = joined else {
            tracing::debug!("a change of protocol was agreed on and then not made");
            return;
        };
        let passed = Arc::new(Notify::new());
        let mut client = Seen {
            inner: TokioIo::new(client),
            passed: Arc::clone(&passed),
        };
        let mut service = TokioIo::new(service);
        let idle = async {
            while tokio::time::timeout(bounds.idle, passed.notified())
                .await
                .is_ok()
            {}
        };
        let copy = tokio::io::copy_bidirectional(&mut client, &mut service);
        // Either end may break at any time; that is how such connections end.
        tokio::select! {
            _ = tokio::time::timeout(bounds.age, copy) => {}
            () = idle => tracing::debug!("nothing passed through a tunnel for limits.tunnel_idle"),
        }
    });
}

/// A connection that tells when something passes.
struct Seen<I> {
    inner: I,
    passed: Arc<Notify>,
}

impl<I: AsyncRead + Unpin> AsyncRead for Seen<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_ready() {
            self.passed.notify_one();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Seen<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if written.is_ready() {
            self.passed.notify_one();
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

/// The head of the answer, with what was taken out as belonging to one connection.
pub(super) fn agree(headers: &mut http::HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
    }
}
