//! The activity of a connection: whether its first request has arrived, and whether one is active.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Response, Version};
use http_body_util::BodyExt as _;
use semel::http::Body;
use tokio::sync::Notify;

/// The activity of a connection's requests.
#[derive(Clone, Default)]
pub(super) struct ConnectionActivity(Arc<ActivityState>);

#[derive(Default)]
struct ActivityState {
    has_request: AtomicBool,
    first_request: Notify,
    is_http2: AtomicBool,
    active: AtomicUsize,
    changed: Notify,
}

impl ConnectionActivity {
    /// Notes a request. On HTTP/2 it is active until the result is dropped.
    pub(super) fn begin_request(&self, version: Version) -> Option<ActiveRequest> {
        if !self.0.has_request.swap(true, Ordering::Relaxed) {
            self.0
                .is_http2
                .store(version == Version::HTTP_2, Ordering::Relaxed);
            self.0.first_request.notify_one();
        }
        // hyper itself detects idle connections of HTTP/1.1.
        (version == Version::HTTP_2).then(|| {
            self.0.active.fetch_add(1, Ordering::Relaxed);
            ActiveRequest(self.clone())
        })
    }

    /// Completes if no request arrives in time, and never otherwise.
    pub(super) async fn first_request_overdue(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.0.first_request.notified())
            .await
            .is_err()
            && !self.0.has_request.load(Ordering::Relaxed)
        {
            return;
        }
        pending::<()>().await;
    }

    /// Completes once an HTTP/2 connection had no active request for this long.
    pub(super) async fn idle(&self, limit: Duration) {
        let state = &self.0;
        loop {
            let changed = tokio::time::timeout(limit, state.changed.notified()).await;
            let is_idle = state.active.load(Ordering::Relaxed) == 0;
            let is_http2 = state.is_http2.load(Ordering::Relaxed);
            if changed.is_err() && is_idle && is_http2 {
                return;
            }
        }
    }
}

/// A request that is active until the end of its response.
pub(super) struct ActiveRequest(ConnectionActivity);

impl ActiveRequest {
    /// Keeps the request active until the response body is dropped.
    pub(super) fn attach_to(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| {
            Body::new(body.map_err(move |error| {
                let _until_the_body_is_dropped = &self;
                error
            }))
        })
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.0.changed.notify_one();
    }
}
