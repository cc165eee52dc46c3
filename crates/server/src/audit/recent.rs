//! The last entries, in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::entry::{ERASED, Entry};

pub(crate) struct Recent {
    most: usize,
    entries: Mutex<VecDeque<Arc<Entry>>>,
}

impl Recent {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            entries: Mutex::new(VecDeque::new()),
        }
    }

    /// Keeps an entry, and tells of it before anybody else can look.
    pub(crate) fn push(&self, entry: Arc<Entry>, tell: impl FnOnce()) {
        let mut entries = self.entries.lock();
        entries.push_back(entry);
        while entries.len() > self.most {
            entries.pop_front();
        }
        tell();
    }

    /// The last `count`, and what `and` gives in the same moment: no entry is missed in between, none comes twice.
    pub(crate) fn last_and<T>(
        &self,
        count: usize,
        and: impl FnOnce() -> T,
    ) -> (Vec<Arc<Entry>>, T) {
        let entries = self.entries.lock();
        let skip = entries.len().saturating_sub(count);
        (entries.iter().skip(skip).cloned().collect(), and())
    }

    pub(crate) fn about(&self, id: &str) -> Vec<Arc<Entry>> {
        let entries = self.entries.lock();
        let about = entries
            .iter()
            .filter(|entry| entry.id.as_deref() == Some(id));
        about.cloned().collect()
    }

    pub(crate) fn erase(&self, actor: &str) {
        for entry in self.entries.lock().iter_mut() {
            if entry.is_erased_with(actor) {
                let mut nameless = (**entry).clone();
                nameless.actor = Some(ERASED.to_owned());
                *entry = Arc::new(nameless);
            }
        }
    }
}
