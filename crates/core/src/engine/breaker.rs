//! The breaker: after failures in a row, don't make every caller wait for a store that is down (P35).
//!
//! Written here because it must take its time from our clock, count only claims, and let exactly one
//! probe through; that is less code than adapting one.

use std::time::Duration;

use crate::clock::Tick;
use crate::event::BreakerState;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

/// When the breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it. 5.
    pub failures: u32,
    /// How long it stays open before one claim may try. 60 s.
    pub open_for: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 5,
            open_for: Duration::from_secs(60),
        }
    }
}

pub(super) struct Breaker {
    config: BreakerConfig,
    // Zero while all is well: the hot path reads this and takes no lock.
    failures: AtomicU32,
    opened: Mutex<Option<Opened>>,
}

struct Opened {
    until: Tick,
    probing: bool,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            failures: AtomicU32::new(0),
            opened: Mutex::new(None),
        }
    }

    /// Whether a claim may be sent; if not, when to ask again.
    pub(super) fn admit(&self, now: Tick) -> Result<Option<BreakerState>, Duration> {
        if self.failures.load(Ordering::Relaxed) < self.config.failures {
            return Ok(None);
        }
        match &mut *self.opened.lock() {
            None => Ok(None),
            Some(opened) if now < opened.until => Err(opened.until.since(now)),
            // A probe that never reports (its caller was torn down) must not keep it open for ever.
            Some(opened) if opened.probing && now < opened.until.plus(self.config.open_for) => {
                Err(opened.until.plus(self.config.open_for).since(now))
            }
            Some(opened) => {
                *opened = Opened {
                    until: now,
                    probing: true,
                };
                Ok(Some(BreakerState::HalfOpen))
            }
        }
    }

    /// What it lets through now.
    pub(super) fn state(&self, now: Tick) -> BreakerState {
        match &*self.opened.lock() {
            None => BreakerState::Closed,
            Some(opened) if opened.probing || now >= opened.until => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    /// The store answered. Tells if that closed the breaker.
    pub(super) fn succeeded(&self) -> Option<BreakerState> {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.opened.lock().take().map(|_| BreakerState::Closed)
    }

    /// The store did not answer. Tells if that opened the breaker.
    pub(super) fn failed(&self, now: Tick) -> Option<BreakerState> {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let mut opened = self.opened.lock();
        let probe_failed = opened.as_ref().is_some_and(|opened| opened.probing);
        if probe_failed || (failures >= self.config.failures && opened.is_none()) {
            *opened = Some(Opened {
                until: now.plus(self.config.open_for),
                probing: false,
            });
            return Some(BreakerState::Open);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Tick = |seconds| Tick::new(Duration::from_secs(seconds));

    #[test]
    fn opens_after_five_failures_in_a_row_and_lets_one_probe_through() {
        let breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..4 {
            assert_eq!(breaker.failed(AT(0)), None);
        }
        assert_eq!(breaker.admit(AT(0)), Ok(None));
        assert_eq!(breaker.failed(AT(0)), Some(BreakerState::Open));
        assert_eq!(breaker.state(AT(59)), BreakerState::Open);
        assert_eq!(breaker.admit(AT(59)), Err(Duration::from_secs(1)));
        assert_eq!(breaker.admit(AT(60)), Ok(Some(BreakerState::HalfOpen)));
        assert_eq!(breaker.state(AT(60)), BreakerState::HalfOpen);
        assert!(breaker.admit(AT(60)).is_err(), "only one probe");
        assert_eq!(breaker.failed(AT(61)), Some(BreakerState::Open));
        assert_eq!(breaker.admit(AT(121)), Ok(Some(BreakerState::HalfOpen)));
        assert_eq!(breaker.succeeded(), Some(BreakerState::Closed));
        assert_eq!(breaker.state(AT(121)), BreakerState::Closed);
        assert_eq!(breaker.admit(AT(121)), Ok(None));
    }

    #[test]
    fn a_success_between_failures_starts_the_count_anew() {
        let breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..4 {
            breaker.failed(AT(0));
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert_eq!(breaker.failed(AT(0)), None);
        }
    }

    #[test]
    fn a_probe_that_never_reports_does_not_keep_it_open() {
        let breaker = Breaker::new(BreakerConfig {
            failures: 1,
            ..BreakerConfig::default()
        });
        breaker.failed(AT(0));
        assert_eq!(breaker.admit(AT(60)), Ok(Some(BreakerState::HalfOpen)));
        assert!(breaker.admit(AT(119)).is_err());
        assert_eq!(breaker.admit(AT(120)), Ok(Some(BreakerState::HalfOpen)));
    }
}
