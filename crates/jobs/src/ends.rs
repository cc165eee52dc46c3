//! Who waits in this process for the end of which job.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::id::JobId;

#[derive(Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<HashMap<JobId, Watched>>>);

struct Watched {
    ended: Arc<Notify>,
    watchers: usize,
}

impl Ends {
    /// One more who waits for this job.
    pub(crate) fn watch(&self, id: JobId) -> Watch {
        let mut all = self.0.lock();
        let watched = all.entry(id).or_insert_with(|| Watched {
            ended: Arc::default(),
            watchers: 0,
        });
        watched.watchers += 1;
        Watch {
            ends: self.clone(),
            id,
            ended: Arc::clone(&watched.ended),
        }
    }

    /// Tells those who wait for this job, and nobody else.
    pub(crate) fn tell(&self, id: JobId) {
        if let Some(watched) = self.0.lock().get(&id) {
            watched.ended.notify_waiters();
        }
    }
}

/// Somebody who waits, until dropped.
pub(crate) struct Watch {
    ends: Ends,
    id: JobId,
    pub(crate) ended: Arc<Notify>,
}

impl Drop for Watch {
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
    async fn an_end_wakes_those_who_wait_for_it_and_nobody_else() {
        let ends = Ends::default();
        let (one, other) = (JobId::from_u128(1), JobId::from_u128(2));
        let (first, second) = (ends.watch(one), ends.watch(other));
        let again = ends.watch(one);
        let (told, told_again) = (first.ended.notified(), again.ended.notified());
        let mut not_told = Box::pin(second.ended.notified());
        ends.tell(one);
        assert!(told.now_or_never().is_some());
        assert!(told_again.now_or_never().is_some());
        assert!((&mut not_told).now_or_never().is_none());
        drop(not_told);
        drop((first, second, again));
        assert!(ends.0.lock().is_empty());
    }
}
