//! Connection limits: in total, from one address, and a reserve for health probes.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::limits::{LimitScope, Limiter};

/// How many connections over the limit are accepted. They get health probes or a 503.
const RESERVE: usize = 32;

/// The slots for connections.
pub(super) struct SlotPool {
    slots: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    /// The connections in the reserve that have sent no request yet, the oldest first. The oldest
    /// one is evicted when the reserve is full, so that silent clients keep no health probe out.
    silent: Mutex<VecDeque<Arc<CancellationToken>>>,
    most_per_address: usize,
    /// Networks without a limit for each address.
    trusted: Vec<IpNet>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    limiter: Option<Limiter>,
}

/// A free slot for the next connection.
pub(super) enum FreeSlot {
    Regular(OwnedSemaphorePermit),
    /// A slot over the limit.
    Reserve(OwnedSemaphorePermit),
}

impl SlotPool {
    pub(super) fn new(
        most: usize,
        most_per_address: usize,
        trusted: Vec<IpNet>,
        limiter: Option<Limiter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(most)),
            reserve: Arc::new(Semaphore::new(RESERVE)),
            silent: Mutex::default(),
            most_per_address,
            trusted,
            by_address: Mutex::default(),
            limiter,
        })
    }

    /// Waits for a free slot. The semaphores are never closed.
    pub(super) async fn wait_for_slot(&self) -> Option<FreeSlot> {
        let is_full = |slots: &Semaphore| slots.available_permits() == 0;
        if is_full(&self.slots)
            && is_full(&self.reserve)
            && let Some(oldest) = self.silent.lock().pop_front()
        {
            oldest.cancel();
        }
        tokio::select! {
            biased;
            slot = Arc::clone(&self.slots).acquire_owned() => slot.ok().map(FreeSlot::Regular),
            slot = Arc::clone(&self.reserve).acquire_owned() => slot.ok().map(FreeSlot::Reserve),
        }
    }

    /// Assigns the slot to a connection from `address`, unless the address has reached its limit.
    pub(super) fn assign(self: &Arc<Self>, free: FreeSlot, address: IpAddr) -> Option<Slot> {
        // A regular slot may have become free since.
        let free = match free {
            FreeSlot::Reserve(reserve) => match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(slot) => FreeSlot::Regular(slot),
                Err(_) => FreeSlot::Reserve(reserve),
            },
            regular @ FreeSlot::Regular(_) => regular,
        };
        let ip = address.to_canonical();
        let is_limited = !self.trusted.iter().any(|network| network.contains(&ip));
        let address = is_limited.then(|| caller_network(ip));
        if let Some(address) = address {
            let mut counts = self.by_address.lock();
            let count = counts.entry(address).or_default();
            if *count >= self.most_per_address {
                drop(counts);
                self.count_refusal(LimitScope::Address);
                return None;
            }
            *count += 1;
        }
        let is_over_limit = matches!(free, FreeSlot::Reserve(_));
        if is_over_limit {
            self.count_refusal(LimitScope::Process);
        }
        if let Some(limiter) = &self.limiter {
            limiter.connection_opened();
        }
        let evicted = Arc::new(CancellationToken::new());
        if is_over_limit {
            self.silent.lock().push_back(Arc::clone(&evicted));
        }
        Some(Slot {
            pool: Arc::clone(self),
            address,
            is_over_limit,
            evicted,
            _permit: match free {
                FreeSlot::Regular(permit) | FreeSlot::Reserve(permit) => permit,
            },
        })
    }

    fn count_refusal(&self, by: LimitScope) {
        if let Some(limiter) = &self.limiter {
            limiter.count_refused_connection(by);
        }
    }
}

/// The address or network that counts as one caller: a /64 network of IPv6, as one caller has a
/// whole network.
pub(crate) fn caller_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(four) => IpAddr::V4(four),
        IpAddr::V6(six) => {
            let bits = six.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }
}

/// The slot of a connection, which is free again once dropped.
pub(super) struct Slot {
    pool: Arc<SlotPool>,
    address: Option<IpAddr>,
    pub(super) is_over_limit: bool,
    evicted: Arc<CancellationToken>,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    /// A token that ends the connection, to make room for another one.
    pub(super) fn evicted(&self) -> Arc<CancellationToken> {
        Arc::clone(&self.evicted)
    }

    /// Keeps the connection until its end, because it has sent a request.
    pub(super) fn keep(&self) {
        let mut silent = self.pool.silent.lock();
        silent.retain(|one| !Arc::ptr_eq(one, &self.evicted));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_over_limit {
            self.keep();
        }
        if let Some(limiter) = &self.pool.limiter {
            limiter.connection_closed();
        }
        let Some(address) = self.address else { return };
        let mut counts = self.pool.by_address.lock();
        match counts.get_mut(&address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn address_limit_applies_and_slots_are_released() {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let pool = SlotPool::new(3, 2, trusted, None);
        let assign = async |address: &str| {
            let free = pool.wait_for_slot().await.unwrap();
            pool.assign(free, address.parse().unwrap())
        };
        let first = [assign("192.0.2.1").await, assign("::ffff:192.0.2.1").await];
        assert!(first.iter().all(Option::is_some));
        assert!(assign("192.0.2.1").await.is_none());
        let last = assign("10.0.0.1").await.unwrap();
        assert!(!last.is_over_limit);
        let more = assign("10.0.0.1").await.unwrap();
        assert!(more.is_over_limit, "over the limit");
        drop(first);
        assert!(!assign("192.0.2.1").await.unwrap().is_over_limit);
        drop((last, more));
        assert!(pool.by_address.lock().is_empty());
    }

    #[tokio::test]
    async fn full_reserve_evicts_its_oldest_silent_connection() {
        let pool = SlotPool::new(1, usize::MAX, Vec::new(), None);
        let address = IpAddr::from([192, 0, 2, 1]);
        let mut slots = Vec::new();
        for _ in 0..=RESERVE {
            let free = pool.wait_for_slot().await.unwrap();
            slots.push(pool.assign(free, address).unwrap());
        }
        slots[1].keep();
        let evicted = || slots.iter().filter(|slot| slot.evicted.is_cancelled());
        assert_eq!(evicted().count(), 0);
        let next = pool.wait_for_slot();
        assert!(futures_util::FutureExt::now_or_never(next).is_none());
        assert_eq!(evicted().count(), 1);
        assert!(slots[2].evicted.is_cancelled(), "the oldest silent one");
        slots.remove(2);
        assert!(pool.wait_for_slot().await.is_some());
        drop(slots);
        assert!(pool.silent.lock().is_empty());
    }

    #[test]
    fn ipv6_network_counts_as_one_caller() {
        let of = |text: &str| caller_network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
