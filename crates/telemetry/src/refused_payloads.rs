//! [`RefusedPayloads`]: detects payloads that come again under a new key after a conflict.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use semel_core::Fingerprint;

/// How many refused payloads are remembered.
const MAX_PAYLOADS: usize = 1024;

/// The last payloads that were refused because their key was used with another payload.
#[derive(Default)]
pub(crate) struct RefusedPayloads {
    // Without any conflict, requests take no lock.
    any: AtomicBool,
    last: Mutex<(VecDeque<Fingerprint>, HashSet<Fingerprint>)>,
}

impl RefusedPayloads {
    pub(crate) fn insert(&self, fingerprint: Fingerprint) {
        let (order, known) = &mut *self.last.lock();
        if !known.insert(fingerprint) {
            return;
        }
        order.push_back(fingerprint);
        if order.len() > MAX_PAYLOADS
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes a payload, and returns whether it was refused before.
    pub(crate) fn take(&self, fingerprint: Fingerprint) -> bool {
        self.any.load(Ordering::Relaxed) && self.last.lock().1.remove(&fingerprint)
    }
}
