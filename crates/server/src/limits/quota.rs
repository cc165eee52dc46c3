//! Quotas of what callers keep in the store: new keys and bytes of responses within a window (leaky
//! bucket).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel::core::{Clock, Tick};
use semel::http::CountKeys;

use super::leases::Leases;
use super::{Caller, ExceededLimit, Limit, LimitScope, Limiter};
use crate::config::Limits;

/// Drained buckets are removed when there are this many, and then each time their number doubles.
const CLEAN_AT: usize = 4096;

/// What one caller may keep within the window.
#[derive(Clone, Copy, Debug)]
struct Quota {
    keys: f64,
    bytes: f64,
}

/// What one caller has kept. It drains over the window.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    keys: f64,
    bytes: f64,
    at: Tick,
}

/// The buckets of all callers.
struct Buckets {
    by_caller: HashMap<Caller, Bucket>,
    /// The number of buckets at which the drained ones are removed.
    clean_at: usize,
}

/// The quotas of all scopes, and what their callers have kept.
pub(super) struct Quotas {
    quotas: Vec<(LimitScope, Quota)>,
    window: Duration,
    clock: Arc<dyn Clock>,
    buckets: Mutex<Buckets>,
    /// What the leases of the protocol API count.
    leases: Mutex<Leases>,
}

impl Quotas {
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn new(limits: &Limits, clock: Arc<dyn Clock>) -> Self {
        let all = [
            (LimitScope::Tenant, limits.tenant_keys, limits.tenant_stored),
            (
                LimitScope::Principal,
                limits.principal_keys,
                limits.principal_stored,
            ),
            (
                LimitScope::Address,
                limits.address_keys,
                limits.address_stored,
            ),
        ];
        let quotas = all.into_iter().filter_map(|(by, keys, bytes)| {
            let bytes = bytes.map(|size| size.bytes());
            (keys.is_some() || bytes.is_some()).then(|| {
                let quota = Quota {
                    keys: keys.map_or(f64::INFINITY, to_f64),
                    bytes: bytes.map_or(f64::INFINITY, |bytes| to_f64(bytes as u64)),
                };
                (by, quota)
            })
        });
        Self {
            quotas: quotas.collect(),
            window: limits.quota_window.0,
            clock,
            buckets: Mutex::new(Buckets {
                by_caller: HashMap::new(),
                clean_at: CLEAN_AT,
            }),
            leases: Mutex::new(Leases::new(limits.quota_window.0)),
        }
    }

    pub(super) fn has(&self, by: LimitScope) -> bool {
        self.quota(by).is_some()
    }

    fn quota(&self, by: LimitScope) -> Option<Quota> {
        let mut quotas = self.quotas.iter();
        quotas
            .find(|(scope, _)| *scope == by)
            .map(|(_, quota)| *quota)
    }

    /// How many more keys the caller may keep.
    pub(super) fn room(&self, caller: &Caller) -> u64 {
        let Some(quota) = self.quota(caller.by) else {
            return u64::MAX;
        };
        let (now, mut buckets) = (self.clock.now(), self.buckets.lock());
        let Some(bucket) = buckets.by_caller.get_mut(caller) else {
            return to_u64(quota.keys);
        };
        self.drain(bucket, quota, now);
        match bucket.bytes < quota.bytes {
            true => to_u64(quota.keys - bucket.keys),
            false => 0,
        }
    }

    /// Counts keys that the caller keeps, and the bytes of their responses.
    pub(super) fn add(&self, caller: &Caller, keys: u64, bytes: u64) {
        let Some(quota) = self.quota(caller.by) else {
            return;
        };
        let (now, mut buckets) = (self.clock.now(), self.buckets.lock());
        if buckets.by_caller.len() >= buckets.clean_at {
            self.remove_drained(&mut buckets, now);
        }
        let empty = Bucket {
            keys: 0.0,
            bytes: 0.0,
            at: now,
        };
        let bucket = buckets.by_caller.entry(caller.clone()).or_insert(empty);
        self.drain(bucket, quota, now);
        bucket.keys += to_f64(keys);
        bucket.bytes += to_f64(bytes);
    }

    /// Takes back what was added and is not kept.
    pub(super) fn remove(&self, caller: &Caller, keys: u64, bytes: u64) {
        if let Some(bucket) = self.buckets.lock().by_caller.get_mut(caller) {
            bucket.keys = (bucket.keys - to_f64(keys)).max(0.0);
            bucket.bytes = (bucket.bytes - to_f64(bytes)).max(0.0);
        }
    }

    /// Changes what is remembered of leases.
    pub(super) fn with_leases<T>(&self, change: impl FnOnce(&mut Leases, Tick) -> T) -> T {
        let now = self.clock.now();
        change(&mut self.leases.lock(), now)
    }

    fn remove_drained(&self, buckets: &mut Buckets, now: Tick) {
        buckets.by_caller.retain(|caller, bucket| {
            let quota = self.quota(caller.by);
            quota.is_some_and(|quota| {
                self.drain(bucket, quota, now);
                bucket.keys > 0.0 || bucket.bytes > 0.0
            })
        });
        buckets.clean_at = (buckets.by_caller.len() * 2).max(CLEAN_AT);
    }

    /// Takes out what has left the window: a full bucket is empty after one window.
    fn drain(&self, bucket: &mut Bucket, quota: Quota, now: Tick) {
        let passed = now.since(bucket.at).as_secs_f64();
        let part = passed / self.window.as_secs_f64().max(f64::EPSILON);
        let drained = |level: f64, most: f64| match most.is_finite() {
            true => (level - most * part).max(0.0),
            false => 0.0,
        };
        bucket.keys = drained(bucket.keys, quota.keys);
        bucket.bytes = drained(bucket.bytes, quota.bytes);
        bucket.at = now;
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "quotas are not exact beyond 2^53"
)]
fn to_f64(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion rounds down and stays within its range"
)]
fn to_u64(number: f64) -> u64 {
    number as u64
}

/// The quota of the callers of one request.
pub(super) struct RequestQuota {
    pub(super) limiter: Limiter,
    pub(super) callers: Vec<Caller>,
}

impl RequestQuota {
    fn exceeded(&self) -> Option<&Caller> {
        let quotas = &self.limiter.shared.quotas;
        self.callers.iter().find(|caller| quotas.room(caller) == 0)
    }
}

impl CountKeys for RequestQuota {
    fn has_room(&self) -> bool {
        self.exceeded().is_none()
    }

    fn count_refusal(&self) {
        if let Some(caller) = self.exceeded() {
            let exceeded = ExceededLimit::new(Limit::Keys, caller.by);
            self.limiter.count_refusal(exceeded);
        }
    }

    fn count(&self, bytes: u64) {
        for caller in &self.callers {
            self.limiter.shared.quotas.add(caller, 1, bytes);
        }
    }
}
