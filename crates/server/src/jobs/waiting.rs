//! Who waits on a call of the queue's: so many in all, and so many of one tenant.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::Failure;
use crate::config::Limits;

/// Counts those who wait. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    most: usize,
    most_of_one: usize,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_tenant: HashMap<String, usize>,
}

impl Waiting {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            most: limits.waiting,
            most_of_one: Limits::share_of(limits.tenant_share, limits.waiting),
            counts: Arc::default(),
        }
    }

    /// A place, given back when dropped.
    pub(super) fn enter(&self, tenant: &str) -> Result<Place, Failure> {
        let mut counts = self.counts.lock();
        let theirs = counts.by_tenant.get(tenant).copied().unwrap_or(0);
        // Without tenants there is nobody to leave room for.
        let has_share = tenant.is_empty() || theirs < self.most_of_one;
        if counts.all >= self.most || !has_share {
            return Err(Failure::of(
                "idempotency_too_many_waiters",
                "as many calls wait as may; ask again later, or without waiting",
            ));
        }
        counts.all += 1;
        counts.by_tenant.insert(tenant.to_owned(), theirs + 1);
        Ok(Place {
            waiting: self.clone(),
            tenant: tenant.to_owned(),
        })
    }
}

pub(super) struct Place {
    waiting: Waiting,
    tenant: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.waiting.counts.lock();
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
    fn one_tenants_waiting_calls_leave_room_for_others() {
        let waiting = Waiting::new(&Limits {
            waiting: 4,
            ..Limits::default()
        });
        let flood = [waiting.enter("flood"), waiting.enter("flood")];
        assert!(flood.iter().all(Result::is_ok));
        assert!(waiting.enter("flood").is_err());
        let others = [waiting.enter("other"), waiting.enter("")];
        assert!(others.iter().all(Result::is_ok));
        assert!(waiting.enter("third").is_err());
        drop((flood, others));
        assert!(waiting.counts.lock().by_tenant.is_empty());
    }
}
