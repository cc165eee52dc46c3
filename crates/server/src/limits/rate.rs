//! Rate limits of callers, in requests per second (token bucket).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use governor::clock::{Clock as _, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use super::{Caller, LimitScope};
use crate::config::Limits;

type Buckets = RateLimiter<
    Arc<str>,
    HashMapStateStore<Arc<str>>,
    MonotonicClock,
    NoOpMiddleware<std::time::Instant>,
>;

/// Idle callers are removed after this many requests.
const REMOVE_IDLE_EVERY: u32 = 4096;

/// The rate limiters of all scopes that have a rate.
pub(super) struct Rates {
    buckets: Vec<(LimitScope, Buckets)>,
    checks: AtomicU32,
}

impl Rates {
    pub(super) fn new(limits: &Limits) -> Self {
        let rates = [
            (LimitScope::Tenant, limits.tenant_rate),
            (LimitScope::Principal, limits.principal_rate),
            (LimitScope::Address, limits.address_rate),
        ];
        let bucket = |(by, rate): (LimitScope, Option<u32>)| {
            let quota = Quota::per_second(NonZeroU32::new(rate?)?);
            let (state, clock) = (HashMapStateStore::default(), MonotonicClock);
            Some((by, RateLimiter::new(quota, state, clock)))
        };
        Self {
            buckets: rates.into_iter().filter_map(bucket).collect(),
            checks: AtomicU32::new(0),
        }
    }

    pub(super) fn has(&self, by: LimitScope) -> bool {
        self.buckets.iter().any(|(scope, _)| *scope == by)
    }

    /// Counts a request of the caller, or returns how long to wait before the next one.
    pub(super) fn check(&self, caller: &Caller) -> Result<(), Duration> {
        let is_scope = |(by, _): &&(LimitScope, Buckets)| *by == caller.by;
        let Some((_, buckets)) = self.buckets.iter().find(is_scope) else {
            return Ok(());
        };
        if self.checks.fetch_add(1, Ordering::Relaxed) % REMOVE_IDLE_EVERY == REMOVE_IDLE_EVERY - 1
        {
            buckets.retain_recent();
        }
        let checked = buckets.check_key(&caller.name);
        checked.map_err(|later| later.wait_time_from(MonotonicClock.now()))
    }
}
