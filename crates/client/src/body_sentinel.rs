//! [`BodySentinel`]: detects whether a request body was ever handed to the socket before the
//! request failed.
//!
//! reqwest follows redirects by itself, and its errors don't say which hop failed. A charge that
//! was made, and answered with a redirect to a host that refuses connections, fails like one that
//! was never sent. But the body of a request stays alive until it has been sent, so its drop shows
//! that it left.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use reqwest::{Body, Request};

/// Knows whether the body of an attempt was dropped, which happens after it was sent.
#[derive(Clone, Default)]
pub(crate) struct BodySentinel(Arc<AtomicBool>);

/// The body of one attempt. Its drop sets the sentinel.
struct WatchedBody {
    body: Body,
    sentinel: BodySentinel,
}

impl AsRef<[u8]> for WatchedBody {
    fn as_ref(&self) -> &[u8] {
        self.body.as_bytes().unwrap_or_default()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.sentinel.0.store(true, Ordering::Release);
    }
}

impl BodySentinel {
    /// Copies a request for one attempt, and watches its body. `None` if the body is a stream,
    /// which can be sent only once.
    pub(crate) fn watch(request: &Request) -> Option<(Request, Self)> {
        let mut attempt = request.try_clone()?;
        let sentinel = Self::default();
        // A request without a body gets an empty one: on the wire they are the same.
        let body = attempt.body_mut().take().unwrap_or_default();
        let watched = WatchedBody {
            body,
            sentinel: sentinel.clone(),
        };
        *attempt.body_mut() = Some(Bytes::from_owner(watched).into());
        Some((attempt, sentinel))
    }

    /// Awaits an attempt. Returns whether the body had left before its end, and the result.
    pub(crate) async fn observe<T>(&self, attempt: impl Future<Output = T>) -> (bool, T) {
        let mut attempt = pin!(attempt);
        poll_fn(|context| {
            // Read before each poll: the last poll ends the attempt, and drops the body in any
            // case.
            let had_left = self.0.load(Ordering::Acquire);
            attempt.as_mut().poll(context).map(|end| (had_left, end))
        })
        .await
    }
}
