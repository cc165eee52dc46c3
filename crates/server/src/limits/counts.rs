//! What one caller, or the process, has taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::By;

/// Somebody whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) by: By,
    pub(crate) name: Arc<str>,
}

impl Caller {
    pub(crate) fn new(by: By, name: &str) -> Self {
        Self {
            by,
            name: name.into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Counts {
    most_requests: usize,
    most_running: usize,
    most_bytes: usize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
    running: Arc<Semaphore>,
}

impl Counts {
    pub(super) fn new([most_requests, most_running, most_bytes]: [usize; 3]) -> Self {
        Self {
            most_requests,
            most_running,
            most_bytes,
            requests: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            running: Arc::new(Semaphore::new(most_running.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// One request more, if there is room.
    pub(super) fn begin(&self) -> bool {
        add(&self.requests, 1, self.most_requests)
    }

    /// One fewer; how many are left.
    pub(super) fn end(&self) -> usize {
        self.requests.fetch_sub(1, Ordering::Relaxed) - 1
    }

    pub(super) fn take(&self, bytes: usize) -> bool {
        add(&self.bytes, bytes, self.most_bytes)
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A place with the service, when there is one.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).acquire_owned().await.ok()
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn running(&self) -> usize {
        let left = self.running.available_permits();
        self.most_running.saturating_sub(left)
    }
}

fn add(count: &AtomicUsize, more: usize, most: usize) -> bool {
    let fits = |now: usize| now.checked_add(more).filter(|sum| *sum <= most);
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
    added.is_ok()
}

/// The callers who have requests now, and nobody else.
#[derive(Default)]
pub(super) struct Callers {
    known: Mutex<HashMap<Caller, Arc<Counts>>>,
}

impl Callers {
    /// One request more of this caller, if its share has room.
    pub(super) fn begin(
        &self,
        caller: &Caller,
        make: impl FnOnce() -> Counts,
    ) -> Option<Arc<Counts>> {
        let mut known = self.known.lock();
        if let Some(counts) = known.get(caller) {
            return counts.begin().then(|| Arc::clone(counts));
        }
        let counts = Arc::new(make());
        counts.begin();
        known.insert(caller.clone(), Arc::clone(&counts));
        Some(counts)
    }

    /// One fewer. Under the lock, so that nobody begins on counts that are being forgotten.
    pub(super) fn end(&self, caller: &Caller, counts: &Counts) {
        let mut known = self.known.lock();
        if counts.end() == 0 {
            known.remove(caller);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.lock().len()
    }
}
