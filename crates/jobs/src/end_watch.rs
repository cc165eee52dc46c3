//! Wakes callers of this process that wait for the end of a job.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::id::JobId;

#[derive(Clone, Default)]
pub(crate) struct EndWatchers(Arc<Mutex<HashMap<JobId, WatchedJob>>>);

struct WatchedJob {
    ended: Arc<Notify>,
    watchers: usize,
}

impl EndWatchers {
    /// Adds a waiter for this job.
    pub(crate) fn watch(&self, id: JobId) -> EndWatch {
        let mut all = self.0.lock();
        let watched = all.entry(id).or_insert_with(|| WatchedJob {
            ended: Arc::default(),
            watchers: 0,
        });
        watched.watchers += 1;
        EndWatch {
            ends: self.clone(),
            id,
            ended: Arc::clone(&watched.ended),
        }
    }

    /// Wakes the waiters of this job.
    pub(crate) fn notify(&self, id: JobId) {
        if let Some(watched) = self.0.lock().get(&id) {
            watched.ended.notify_waiters();
        }
    }
}

/// One waiter, registered until dropped.
pub(crate) struct EndWatch {
    ends: EndWatchers,
    id: JobId,
    pub(crate) ended: Arc<Notify>,
}

impl Drop for EndWatch {
    fn drop(&mut self) {
        let mut all = self.ends.0.lock();
        let Some(watched) = all.get_mut(&self.id) else {
            return;
        };
        watched.watchers -= 1;
        if watched.watchers == 0 {
            all.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn end_of_a_job_wakes_only_its_waiters() {
        let ends = EndWatchers::default();
        let (one, other) = (JobId::from_u128(1), JobId::from_u128(2));
        let (first, second) = (ends.watch(one), ends.watch(other));
        let again = ends.watch(one);
        let (told, told_again) = (first.ended.notified(), again.ended.notified());
        let mut not_told = Box::pin(second.ended.notified());
        ends.notify(one);
        assert!(told.now_or_never().is_some());
        assert!(told_again.now_or_never().is_some());
        assert!((&mut not_told).now_or_never().is_none());
        drop(not_told);
        drop((first, second, again));
        assert!(ends.0.lock().is_empty());
    }
}
