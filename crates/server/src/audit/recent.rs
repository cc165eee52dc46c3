//! [`RecentEntries`]: the last entries, in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::entry::{ERASED, Entry};

/// The last entries, for histories and live streams.
pub(crate) struct RecentEntries {
    most: usize,
    entries: Mutex<VecDeque<Arc<Entry>>>,
}

impl RecentEntries {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            entries: Mutex::new(VecDeque::new()),
        }
    }

    /// Adds an entry, and calls `publish` under the same lock.
    pub(crate) fn push(&self, entry: Arc<Entry>, publish: impl FnOnce()) {
        let mut entries = self.entries.lock();
        entries.push_back(entry);
        while entries.len() > self.most {
            entries.pop_front();
        }
        publish();
    }

    /// The last `count` entries and the result of `subscribe`, under one lock, so that no entry is
    /// missed or repeated.
    pub(crate) fn follow<T>(
        &self,
        count: usize,
        subscribe: impl FnOnce() -> T,
    ) -> (Vec<Arc<Entry>>, T) {
        let entries = self.entries.lock();
        let skip = entries.len().saturating_sub(count);
        (entries.iter().skip(skip).cloned().collect(), subscribe())
    }

    pub(crate) fn find(&self, id: &str) -> Vec<Arc<Entry>> {
        let entries = self.entries.lock();
        let matching = entries
            .iter()
            .filter(|entry| entry.id.as_deref() == Some(id));
        matching.cloned().collect()
    }

    pub(crate) fn erase(&self, actor: &str) {
        for entry in self.entries.lock().iter_mut() {
            if entry.is_erased_with(actor) {
                let mut erased = (**entry).clone();
                erased.actor = Some(ERASED.to_owned());
                *entry = Arc::new(erased);
            }
        }
    }
}
