//! The activity of a connection: whether its first request has arrived, whether one is active, and
//! how many the client has reset.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Response, Version};
use semel::http::Body;
use tokio::sync::Notify;

use super::unread_streams::StreamBody;

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
    /// How many requests of an HTTP/2 connection were dropped before their response.
    resets: AtomicUsize,
    reset: Notify,
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
            ActiveRequest {
                activity: self.clone(),
                is_answered: false,
            }
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

    /// Completes once the client has reset more than `most` requests before their responses.
    pub(super) async fn resets_exceed(&self, most: usize) {
        while self.0.resets.load(Ordering::Relaxed) <= most {
            self.0.reset.notified().await;
        }
    }
}

/// A request of an HTTP/2 connection, which is active until the end of its response.
pub(super) struct ActiveRequest {
    activity: ConnectionActivity,
    is_answered: bool,
}

impl ActiveRequest {
    /// Keeps the request active until the response body is dropped.
    pub(super) fn attach_to(mut self, response: Response<Body>) -> Response<Body> {
        self.is_answered = true;
        response.map(|body| StreamBody::wrap(body, self))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let state = &self.activity.0;
        if !self.is_answered {
            state.resets.fetch_add(1, Ordering::Relaxed);
            state.reset.notify_one();
        }
        state.active.fetch_sub(1, Ordering::Relaxed);
        state.changed.notify_one();
    }
}
