//! Counters of what the process and each caller use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::LimitScope;

/// A tenant, principal or address whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) by: LimitScope,
    pub(crate) name: Arc<str>,
}

impl Caller {
    pub(crate) fn new(by: LimitScope, name: &str) -> Self {
        Self {
            by,
            name: name.into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Usage {
    most_requests: usize,
    most_running: usize,
    most_bytes: usize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
    running: Arc<Semaphore>,
}

impl Usage {
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

    /// Counts a new request, if the limit allows it.
    pub(super) fn begin(&self) -> bool {
        add(&self.requests, 1, self.most_requests)
    }

    /// Counts the end of a request, and returns how many are left.
    pub(super) fn end(&self) -> usize {
        self.requests.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// Reserves memory for a body, if the limit allows it.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        add(&self.bytes, bytes, self.most_bytes)
    }

    /// Returns reserved memory.
    pub(super) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits for a permit to run a request at the service.
    pub(super) async fn acquire_run(&self) -> Option<OwnedSemaphorePermit> {
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

/// The usage of callers with active requests.
#[derive(Default)]
pub(super) struct ActiveCallers {
    usage: Mutex<HashMap<Caller, Arc<Usage>>>,
}

impl ActiveCallers {
    /// Counts a new request of the caller, if its share allows it.
    pub(super) fn begin(
        &self,
        caller: &Caller,
        make: impl FnOnce() -> Usage,
    ) -> Option<Arc<Usage>> {
        let mut active = self.usage.lock();
        if let Some(usage) = active.get(caller) {
            return usage.begin().then(|| Arc::clone(usage));
        }
        let usage = Arc::new(make());
        usage.begin();
        active.insert(caller.clone(), Arc::clone(&usage));
        Some(usage)
    }

    /// Counts the end of a request. The lock prevents a new request on counters that are being
    /// removed.
    pub(super) fn end(&self, caller: &Caller, usage: &Usage) {
        let mut active = self.usage.lock();
        if usage.end() == 0 {
            active.remove(caller);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.usage.lock().len()
    }
}
