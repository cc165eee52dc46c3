//! Requests a second.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use governor::clock::{Clock as _, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use super::{By, Caller};
use crate::config::Limits;

type Buckets = RateLimiter<
    Arc<str>,
    HashMapStateStore<Arc<str>>,
    MonotonicClock,
    NoOpMiddleware<std::time::Instant>,
>;

/// Callers who have been quiet are forgotten after so many requests.
const FORGET_EVERY: u32 = 4096;

/// The rates that the settings bound.
pub(super) struct Rates {
    buckets: Vec<(By, Buckets)>,
    asked: AtomicU32,
}

impl Rates {
    pub(super) fn new(limits: &Limits) -> Self {
        let rates = [
            (By::Tenant, limits.tenant_rate),
            (By::Principal, limits.principal_rate),
            (By::Address, limits.address_rate),
        ];
        let bucket = |(by, rate): (By, Option<u32>)| {
            let quota = Quota::per_second(NonZeroU32::new(rate?)?);
            let (state, clock) = (HashMapStateStore::default(), MonotonicClock);
            Some((by, RateLimiter::new(quota, state, clock)))
        };
        Self {
            buckets: rates.into_iter().filter_map(bucket).collect(),
            asked: AtomicU32::new(0),
        }
    }

    pub(super) fn has(&self, by: By) -> bool {
        self.buckets.iter().any(|(known, _)| *known == by)
    }

    /// Counts a request of this caller; or says after how long one would be let in.
    pub(super) fn check(&self, caller: &Caller) -> Result<(), Duration> {
        let of = |(by, _): &&(By, Buckets)| *by == caller.by;
        let Some((_, buckets)) = self.buckets.iter().find(of) else {
            return Ok(());
        };
        if self.asked.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            buckets.retain_recent();
        }
        let checked = buckets.check_key(&caller.name);
        checked.map_err(|later| later.wait_time_from(MonotonicClock.now()))
    }
}
