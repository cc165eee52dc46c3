//! Places for connections: so many, so many of them from one address, and a few more for health checks.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{By, Limiter};

/// The most connections beyond the bound: they are told of their health, or that there are too many.
const MORE: usize = 32;

pub(super) struct Room {
    places: Arc<Semaphore>,
    more: Arc<Semaphore>,
    most_per_address: usize,
    /// Who may have all places.
    trusted: Vec<IpNet>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    limiter: Option<Limiter>,
}

/// A place that may be taken by whoever comes next.
pub(super) enum Free {
    One(OwnedSemaphorePermit),
    /// Beyond the bound.
    More(OwnedSemaphorePermit),
}

impl Room {
    pub(super) fn new(
        most: usize,
        most_per_address: usize,
        trusted: Vec<IpNet>,
        limiter: Option<Limiter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(most)),
            more: Arc::new(Semaphore::new(MORE)),
            most_per_address,
            trusted,
            by_address: Mutex::default(),
            limiter,
        })
    }

    /// A place, when there is one. The semaphores are never closed.
    pub(super) async fn free(&self) -> Option<Free> {
        tokio::select! {
            biased;
            place = Arc::clone(&self.places).acquire_owned() => place.ok().map(Free::One),
            place = Arc::clone(&self.more).acquire_owned() => place.ok().map(Free::More),
        }
    }

    /// The place of a connection from `address`; nothing where that has as many as it may have.
    pub(super) fn take(self: &Arc<Self>, free: Free, address: IpAddr) -> Option<Taken> {
        // One may have come free since.
        let free = match free {
            Free::More(more) => match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => Free::One(place),
                Err(_) => Free::More(more),
            },
            one @ Free::One(_) => one,
        };
        let ip = address.to_canonical();
        let is_bound = !self.trusted.iter().any(|network| network.contains(&ip));
        let address = is_bound.then(|| of_one_caller(ip));
        if let Some(address) = address {
            let mut counts = self.by_address.lock();
            let count = counts.entry(address).or_default();
            if *count >= self.most_per_address {
                drop(counts);
                self.refused(By::Address);
                return None;
            }
            *count += 1;
        }
        let is_more = matches!(free, Free::More(_));
        if is_more {
            self.refused(By::Process);
        }
        if let Some(limiter) = &self.limiter {
            limiter.connection_opened();
        }
        Some(Taken {
            room: Arc::clone(self),
            address,
            is_more,
            _permit: match free {
                Free::One(permit) | Free::More(permit) => permit,
            },
        })
    }

    fn refused(&self, by: By) {
        if let Some(limiter) = &self.limiter {
            limiter.no_connection(by);
        }
    }
}

/// Of IPv6, one caller has a whole network of addresses.
pub(crate) fn of_one_caller(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(four) => IpAddr::V4(four),
        IpAddr::V6(six) => {
            let bits = six.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }
}

/// A connection's place.
pub(super) struct Taken {
    room: Arc<Room>,
    address: Option<IpAddr>,
    pub(super) is_more: bool,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(limiter) = &self.room.limiter {
            limiter.connection_closed();
        }
        let Some(address) = self.address else { return };
        let mut counts = self.room.by_address.lock();
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
    async fn an_address_has_its_bound_and_gets_its_places_back() {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let room = Room::new(3, 2, trusted, None);
        let take = async |address: &str| {
            let free = room.free().await.unwrap();
            room.take(free, address.parse().unwrap())
        };
        let first = [take("192.0.2.1").await, take("::ffff:192.0.2.1").await];
        assert!(first.iter().all(Option::is_some));
        assert!(take("192.0.2.1").await.is_none());
        let last = take("10.0.0.1").await.unwrap();
        assert!(!last.is_more);
        let more = take("10.0.0.1").await.unwrap();
        assert!(more.is_more, "beyond the bound");
        drop(first);
        assert!(!take("192.0.2.1").await.unwrap().is_more);
        drop((last, more));
        assert!(room.by_address.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_caller() {
        let of = |text: &str| of_one_caller(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
