//! Limits on waiting calls of the jobs API: in total, and of one tenant.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use semel::core::Code;

use crate::config::Limits;
use crate::web::Failure;

/// The slots for waiting calls. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct WaitSlots {
    most: usize,
    most_per_tenant: usize,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_tenant: HashMap<String, usize>,
}

impl WaitSlots {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            most: limits.waiting,
            most_per_tenant: Limits::compute_share(limits.tenant_share, limits.waiting),
            counts: Arc::default(),
        }
    }

    /// Takes a slot, which is free again once dropped.
    pub(super) fn acquire(&self, tenant: &str) -> Result<WaitSlot, Failure> {
        let mut counts = self.counts.lock();
        let of_tenant = counts.by_tenant.get(tenant).copied().unwrap_or(0);
        // Without tenants there is no share to enforce.
        let has_share = tenant.is_empty() || of_tenant < self.most_per_tenant;
        if counts.all >= self.most || !has_share {
            return Err(Failure::new(
                Code::TooManyWaiters,
                "the maximum number of waiting calls is reached; retry later, or without waiting",
            ));
        }
        counts.all += 1;
        counts.by_tenant.insert(tenant.to_owned(), of_tenant + 1);
        Ok(WaitSlot {
            slots: self.clone(),
            tenant: tenant.to_owned(),
        })
    }
}

/// The slot of a waiting call.
pub(super) struct WaitSlot {
    slots: WaitSlots,
    tenant: String,
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        let mut counts = self.slots.counts.lock();
        counts.all -= 1;
        match counts.by_tenant.get_mut(&self.tenant) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.by_tenant.remove(&self.tenant)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_share_leaves_wait_slots_for_others() {
        let slots = WaitSlots::new(&Limits {
            waiting: 4,
            ..Limits::default()
        });
        let flood = [slots.acquire("flood"), slots.acquire("flood")];
        assert!(flood.iter().all(Result::is_ok));
        assert!(slots.acquire("flood").is_err());
        let others = [slots.acquire("other"), slots.acquire("")];
        assert!(others.iter().all(Result::is_ok));
        assert!(slots.acquire("third").is_err());
        drop((flood, others));
        assert!(slots.counts.lock().by_tenant.is_empty());
    }
}
