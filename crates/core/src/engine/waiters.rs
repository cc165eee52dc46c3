//! Bounds on waiting callers, per key, tenant and process (back-pressure, P34).

use std::sync::Arc;

use hashbrown::HashMap;

use crate::event::BusyReason;
use crate::identity::Address;
use crate::namespace::Namespace;
use crate::sync::Mutex;

pub(super) struct Waiters {
    max_in_process: usize,
    max_per_tenant: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    in_process: usize,
    per_key: HashMap<Address, usize>,
    per_tenant: HashMap<Tenant, usize>,
}

/// The tenant of a waiter. Without tenants, the bound per tenant doesn't apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tenant(Box<str>);

impl Tenant {
    pub(super) fn from_namespace(namespace: &Namespace) -> Option<Self> {
        let name = namespace.tenant();
        (!name.is_empty()).then(|| Self(name.into()))
    }
}

impl Waiters {
    pub(super) fn new(max_in_process: usize, max_per_tenant: usize) -> Arc<Self> {
        Arc::new(Self {
            max_in_process,
            max_per_tenant,
            counts: Mutex::new(Counts::default()),
        })
    }

    /// Admits one more waiter for `address`. The permit gives its place back when dropped.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: Address,
        tenant: Option<Tenant>,
        most: usize,
    ) -> Result<WaiterPermit, BusyReason> {
        let mut counts = self.counts.lock();
        if counts.in_process >= self.max_in_process {
            return Err(BusyReason::ProcessWaiters);
        }
        let here = counts.per_key.get(&address).copied().unwrap_or(0);
        if here >= most {
            return Err(BusyReason::KeyWaiters);
        }
        if let Some(tenant) = &tenant {
            let theirs = counts.per_tenant.get(tenant).copied().unwrap_or(0);
            if theirs >= self.max_per_tenant {
                return Err(BusyReason::TenantWaiters);
            }
            counts.per_tenant.insert(tenant.clone(), theirs + 1);
        }
        counts.per_key.insert(address, here + 1);
        counts.in_process += 1;
        Ok(WaiterPermit {
            waiters: Arc::clone(self),
            address,
            tenant,
            position: u32::try_from(here + 1).unwrap_or(u32::MAX),
        })
    }

    pub(super) fn waiting(&self) -> usize {
        self.counts.lock().in_process
    }
}

/// The permission to wait, counted until it is dropped.
pub(super) struct WaiterPermit {
    waiters: Arc<Waiters>,
    address: Address,
    tenant: Option<Tenant>,
    position: u32,
}

impl WaiterPermit {
    /// How many callers waited for the key when this one came, with this one.
    pub(super) const fn position(&self) -> u32 {
        self.position
    }
}

impl Drop for WaiterPermit {
    fn drop(&mut self) {
        let mut counts = self.waiters.counts.lock();
        counts.in_process -= 1;
        leave(&mut counts.per_key, &self.address);
        if let Some(tenant) = &self.tenant {
            leave(&mut counts.per_tenant, tenant);
        }
    }
}

/// Decrements a count, and removes it at zero.
fn leave<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, whose: &K) {
    match counts.get_mut(whose) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(whose)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_per_key_and_process_and_permits_return() {
        let waiters = Waiters::new(3, 3);
        let enter = |key: u8| waiters.enter([key; 16], None, 2);
        let first = [enter(1), enter(1)];
        assert!(first.iter().all(Result::is_ok));
        assert_eq!(enter(1).err(), Some(BusyReason::KeyWaiters));
        let other = enter(2);
        assert_eq!(enter(3).err(), Some(BusyReason::ProcessWaiters));
        drop((first, other));
        assert_eq!(waiters.waiting(), 0);
        assert!(waiters.counts.lock().per_key.is_empty());
    }

    #[test]
    fn tenant_bound_leaves_room_for_other_tenants() {
        let waiters = Waiters::new(4, 2);
        let enter = |key: u8, whose: &str| {
            let tenant = (!whose.is_empty()).then(|| Tenant(whose.into()));
            waiters.enter([key; 16], tenant, 9)
        };
        let flood = [enter(1, "flood"), enter(2, "flood")];
        assert!(flood.iter().all(Result::is_ok));
        assert_eq!(enter(3, "flood").err(), Some(BusyReason::TenantWaiters));
        let others = [enter(4, "other"), enter(5, "")];
        assert!(others.iter().all(Result::is_ok));
        drop((flood, others));
        assert!(waiters.counts.lock().per_tenant.is_empty());
        assert!(enter(1, "flood").is_ok());
    }
}
