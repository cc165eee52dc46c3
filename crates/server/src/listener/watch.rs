//! What a connection does: whether its first request has come, and whether any is under way.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Response, Version};
use http_body_util::BodyExt as _;
use semel::http::Body;
use tokio::sync::Notify;

/// The requests of a connection.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<Seen>);

#[derive(Default)]
struct Seen {
    came: AtomicBool,
    told: Notify,
    is_http2: AtomicBool,
    under_way: AtomicUsize,
    changed: Notify,
}

impl Requests {
    /// One begins. It is under way until what this gives is dropped.
    pub(super) fn came(&self, version: Version) -> Option<UnderWay> {
        if !self.0.came.swap(true, Ordering::Relaxed) {
            self.0
                .is_http2
                .store(version == Version::HTTP_2, Ordering::Relaxed);
            self.0.told.notify_one();
        }
        // Of HTTP/1.1, hyper itself sees idle connections.
        (version == Version::HTTP_2).then(|| {
            self.0.under_way.fetch_add(1, Ordering::Relaxed);
            UnderWay(self.clone())
        })
    }

    /// Completes where no request came in time; never where one did.
    pub(super) async fn overdue(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.0.told.notified())
            .await
            .is_err()
            && !self.0.came.load(Ordering::Relaxed)
        {
            return;
        }
        pending::<()>().await;
    }

    /// Completes where nothing was under way on HTTP/2 for so long.
    pub(super) async fn idle(&self, limit: Duration) {
        let seen = &self.0;
        loop {
            let changed = tokio::time::timeout(limit, seen.changed.notified()).await;
            let is_idle = seen.under_way.load(Ordering::Relaxed) == 0;
            let may_be = seen.is_http2.load(Ordering::Relaxed);
            if changed.is_err() && is_idle && may_be {
                return;
            }
        }
    }
}

/// A request, to the end of its answer.
pub(super) struct UnderWay(Requests);

impl UnderWay {
    /// Stays until the answer's body has ended.
    pub(super) fn until_the_end_of(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| {
            Body::new(body.map_err(move |error| {
                let _until_the_body_is_dropped = &self;
                error
            }))
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.0.changed.notify_one();
    }
}
