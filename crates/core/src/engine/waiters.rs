//! Counts who waits, and says no past the bounds (P34).

use std::sync::Arc;

use hashbrown::HashMap;

use crate::event::BusyReason;
use crate::identity::Address;
use crate::sync::Mutex;

pub(super) struct Waiters {
    max_in_process: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    in_process: usize,
    per_key: HashMap<Address, usize>,
}

impl Waiters {
    pub(super) fn new(max_in_process: usize) -> Arc<Self> {
        Arc::new(Self {
            max_in_process,
            counts: Mutex::new(Counts::default()),
        })
    }

    /// A place to wait for `address`, given back when dropped.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: Address,
        most: usize,
    ) -> Result<Place, BusyReason> {
        let mut counts = self.counts.lock();
        if counts.in_process >= self.max_in_process {
            return Err(BusyReason::ProcessWaiters);
        }
        let here = counts.per_key.get(&address).copied().unwrap_or(0);
        if here >= most {
            return Err(BusyReason::KeyWaiters);
        }
        counts.per_key.insert(address, here + 1);
        counts.in_process += 1;
        Ok(Place {
            waiters: Arc::clone(self),
            address,
        })
    }

    pub(super) fn waiting(&self) -> usize {
        self.counts.lock().in_process
    }
}

pub(super) struct Place {
    waiters: Arc<Waiters>,
    address: Address,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.waiters.counts.lock();
        counts.in_process -= 1;
        let left = counts.per_key.get(&self.address).copied().unwrap_or(1) - 1;
        if left == 0 {
            counts.per_key.remove(&self.address);
        } else {
            counts.per_key.insert(self.address, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_per_key_and_per_process_and_places_come_back() {
        let waiters = Waiters::new(3);
        let first = [waiters.enter([1; 16], 2), waiters.enter([1; 16], 2)];
        assert!(first.iter().all(Result::is_ok));
        assert_eq!(
            waiters.enter([1; 16], 2).err(),
            Some(BusyReason::KeyWaiters)
        );
        let other = waiters.enter([2; 16], 2);
        assert_eq!(
            waiters.enter([3; 16], 2).err(),
            Some(BusyReason::ProcessWaiters)
        );
        drop((first, other));
        assert_eq!(waiters.waiting(), 0);
        assert!(waiters.counts.lock().per_key.is_empty());
    }
}
