//! Whether a request had left before its error came.
//!
//! reqwest follows redirects by itself, and says of an error neither which hop it is of nor that there was one: a charge
//! that was made, and answered with the address of a host that refuses, fails like one that never left. But as long as a
//! request has not been sent, somebody holds its body. Once all have let go of it, it is gone.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use reqwest::{Body, Request};

/// Whether nobody holds the body of an attempt any more.
#[derive(Clone, Default)]
pub(crate) struct Left(Arc<AtomicBool>);

/// The body of one attempt, until the last who holds it lets go.
struct Held {
    body: Body,
    left: Left,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.body.as_bytes().unwrap_or_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.left.0.store(true, Ordering::Release);
    }
}

impl Left {
    /// A copy to be sent, and the eye on it. Nothing where the body is a stream, which can be sent only once.
    pub(crate) fn copy(request: &Request) -> Option<(Request, Self)> {
        let mut attempt = request.try_clone()?;
        let left = Self::default();
        // One without a body has an empty one: on the wire they are the same.
        let body = attempt.body_mut().take().unwrap_or_default();
        let held = Held {
            body,
            left: left.clone(),
        };
        *attempt.body_mut() = Some(Bytes::from_owner(held).into());
        Some((attempt, left))
    }

    /// Waits for the end of an attempt. → whether the request had left before, and how it ended.
    pub(crate) async fn before<T>(&self, attempt: impl Future<Output = T>) -> (bool, T) {
        let mut attempt = pin!(attempt);
        poll_fn(|context| {
            // Before each step: the last one ends the attempt, and lets go of the body in any case.
            let had_left = self.0.load(Ordering::Acquire);
            attempt.as_mut().poll(context).map(|end| (had_left, end))
        })
        .await
    }
}
