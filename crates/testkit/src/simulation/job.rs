//! [`Job`]: one request of a caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::Identity;

use super::sched::Micros;

/// One request, as a node is given it.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) key: usize,
    pub(super) payload: u8,
    pub(super) node: usize,
    pub(super) identity: Identity,
    pub(super) fail_open: bool,
    /// How long the caller may be kept waiting.
    pub(super) wait: Micros,
    /// One of those that are asked when all faults are over.
    pub(super) last: bool,
    pub(super) again: bool,
    /// How long its effect took.
    pub(super) worked: Arc<AtomicU64>,
}

impl Job {
    pub(super) fn worked(&self, micros: Micros) {
        self.worked.fetch_add(micros, Ordering::Relaxed);
    }

    /// The same, when all faults are over.
    pub(super) fn last(self) -> Self {
        Self { last: true, ..self }
    }

    pub(super) fn work(&self) -> Micros {
        self.worked.load(Ordering::Relaxed)
    }
}
