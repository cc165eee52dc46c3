//! The activity of a connection: whether its first request has arrived, whether one is active, and
//! how fast the client resets them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Response, Version};
use parking_lot::Mutex;
use semel::core::{Clock, Tick};
use semel::http::Body;
use tokio::sync::Notify;

use super::unread_streams::StreamBody;

/// The activity of a connection's requests.
#[derive(Clone)]
pub(super) struct ConnectionActivity(Arc<ActivityState>);

struct ActivityState {
    clock: Arc<dyn Clock>,
    has_request: AtomicBool,
    first_request: Notify,
    is_http2: AtomicBool,
    active: AtomicUsize,
    changed: Notify,
    /// The requests of an HTTP/2 connection that were dropped before their response.
    resets: Mutex<Resets>,
    reset: Notify,
}

/// How many resets a client has in hand again after each second.
const RESETS_PER_SECOND: f64 = 32.0;

/// The recent resets of a connection. Those of long ago don't count: a connection that a proxy
/// shares among its clients may live for days.
#[derive(Default)]
struct Resets {
    level: f64,
    at: Option<Tick>,
}

impl Resets {
    fn add(&mut self, now: Tick) {
        let passed = self.at.map_or(0.0, |at| now.since(at).as_secs_f64());
        self.level = (self.level - passed * RESETS_PER_SECOND).max(0.0) + 1.0;
        self.at = Some(now);
    }
}

impl ConnectionActivity {
    /// Of a connection without a request so far.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(ActivityState {
            clock,
            has_request: AtomicBool::default(),
            first_request: Notify::default(),
            is_http2: AtomicBool::default(),
            active: AtomicUsize::default(),
            changed: Notify::default(),
            resets: Mutex::default(),
            reset: Notify::default(),
        }))
    }

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

    /// Completes once the client has reset more than `most` requests before their responses, in a
    /// short time.
    pub(super) async fn resets_exceed(&self, most: u32) {
        while self.0.resets.lock().level <= f64::from(most) {
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
            state.resets.lock().add(state.clock.now());
            state.reset.notify_one();
        }
        state.active.fetch_sub(1, Ordering::Relaxed);
        state.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// A clock that the test moves.
    #[derive(Default)]
    struct HandClock(Mutex<Duration>);

    impl Clock for HandClock {
        fn now(&self) -> Tick {
            Tick::new(*self.0.lock())
        }

        fn wall(&self) -> semel::core::Timestamp {
            semel::core::Timestamp::default()
        }

        fn sleep(&self, _: Duration) -> semel::core::clock::Sleep {
            unreachable!("resets do not sleep")
        }
    }

    fn is_exceeded(activity: &ConnectionActivity) -> bool {
        activity.resets_exceed(128).now_or_never().is_some()
    }

    #[test]
    fn slow_resets_are_never_too_many() {
        let clock = Arc::new(HandClock::default());
        let activity = ConnectionActivity::new(Arc::clone(&clock) as Arc<dyn Clock>);
        for _ in 0..1000 {
            drop(activity.begin_request(Version::HTTP_2));
            assert!(!is_exceeded(&activity));
            *clock.0.lock() += Duration::from_millis(100);
        }
        for _ in 0..129 {
            drop(activity.begin_request(Version::HTTP_2));
        }
        assert!(is_exceeded(&activity));
    }
}
