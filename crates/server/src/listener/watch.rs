//! Whether a connection's first request has come.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Set by the first request of a connection.
#[derive(Default)]
pub(super) struct FirstRequest {
    came: AtomicBool,
    told: Notify,
}

impl FirstRequest {
    pub(super) fn came(&self) {
        if !self.came.swap(true, Ordering::Relaxed) {
            self.told.notify_one();
        }
    }

    /// Completes where no request came in time; never where one did.
    pub(super) async fn overdue(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.told.notified())
            .await
            .is_err()
            && !self.came.load(Ordering::Relaxed)
        {
            return;
        }
        pending::<()>().await;
    }
}
