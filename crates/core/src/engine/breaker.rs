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
    /// How long it stays open before a first claim may try. 1 s; with each one that fails, twice as long.
    pub first_try: Duration,
    /// The longest that it stays open between two tries. 60 s.
    pub open_for: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 5,
            first_try: Duration::from_secs(1),
            open_for: Duration::from_secs(60),
        }
    }
}

pub(super) struct Breaker {
    config: BreakerConfig,
    /// How long a probe may be under way.
    call_limit: Duration,
    // Zero while all is well: the hot path reads this and takes no lock.
    failures: AtomicU32,
    opened: Mutex<Option<Opened>>,
}

struct Opened {
    /// When a probe may be sent; when it was, where one is under way.
    until: Tick,
    /// How long it was left alone this time.
    wait: Duration,
    probing: bool,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig, call_limit: Duration) -> Self {
        Self {
            config,
            call_limit,
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
            // A probe that never reports (its caller was torn down) has failed.
            Some(opened) if opened.probing && now < self.silent(opened) => {
                Err(self.silent(opened).since(now))
            }
            Some(opened) => {
                if opened.probing {
                    opened.wait = self.longer(opened.wait);
                }
                (opened.until, opened.probing) = (now, true);
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

    /// The store did not answer what was sent then. Tells if that opened the breaker.
    pub(super) fn failed(&self, sent: Tick, now: Tick) -> Option<BreakerState> {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let mut opened = self.opened.lock();
        let wait = match &*opened {
            // What was sent before the probe says nothing of it.
            Some(opened) if opened.probing && sent >= opened.until => self.longer(opened.wait),
            None if failures >= self.config.failures => {
                self.config.first_try.min(self.config.open_for)
            }
            _ => return None,
        };
        *opened = Some(Opened {
            until: now.plus(wait),
            wait,
            probing: false,
        });
        Some(BreakerState::Open)
    }

    /// When a probe that has not reported will not any more.
    fn silent(&self, probe: &Opened) -> Tick {
        probe
            .until
            .plus(self.longer(probe.wait).max(self.call_limit))
    }

    fn longer(&self, wait: Duration) -> Duration {
        wait.saturating_mul(2).min(self.config.open_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const AT: fn(u64) -> Tick = |seconds| Tick::new(Duration::from_secs(seconds));

    #[test]
    fn opens_after_five_failures_in_a_row_and_lets_one_probe_through() {
        let breaker = Breaker::new(BreakerConfig::default(), LIMIT);
        for _ in 0..4 {
            assert_eq!(breaker.failed(AT(0), AT(0)), None);
        }
        assert_eq!(breaker.admit(AT(0)), Ok(None));
        assert_eq!(breaker.failed(AT(0), AT(0)), Some(BreakerState::Open));
        assert_eq!(breaker.state(AT(0)), BreakerState::Open);
        assert_eq!(breaker.admit(AT(0)), Err(Duration::from_secs(1)));
        assert_eq!(breaker.admit(AT(1)), Ok(Some(BreakerState::HalfOpen)));
        assert_eq!(breaker.state(AT(1)), BreakerState::HalfOpen);
        assert!(breaker.admit(AT(1)).is_err(), "only one probe");
        assert_eq!(breaker.failed(AT(1), AT(1)), Some(BreakerState::Open));
        assert_eq!(breaker.admit(AT(3)), Ok(Some(BreakerState::HalfOpen)));
        assert_eq!(breaker.succeeded(), Some(BreakerState::Closed));
        assert_eq!(breaker.state(AT(3)), BreakerState::Closed);
        assert_eq!(breaker.admit(AT(3)), Ok(None));
    }

    #[test]
    fn a_store_that_stays_down_is_asked_ever_less_often_and_at_least_every_minute() {
        let breaker = Breaker::new(BreakerConfig::default(), LIMIT);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..5 {
            breaker.failed(AT(0), AT(0));
        }
        for _ in 0..8 {
            let wait = breaker.admit(AT(now)).unwrap_err().as_secs();
            waits.push(wait);
            now += wait;
            assert_eq!(breaker.admit(AT(now)), Ok(Some(BreakerState::HalfOpen)));
            assert_eq!(breaker.failed(AT(now), AT(now)), Some(BreakerState::Open));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        // What was forgiven is forgotten: the next time begins with a short wait again.
        breaker.succeeded();
        for _ in 0..5 {
            breaker.failed(AT(now), AT(now));
        }
        assert_eq!(breaker.admit(AT(now)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn a_success_between_failures_starts_the_count_anew() {
        let breaker = Breaker::new(BreakerConfig::default(), LIMIT);
        for _ in 0..4 {
            breaker.failed(AT(0), AT(0));
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert_eq!(breaker.failed(AT(0), AT(0)), None);
        }
    }

    #[test]
    fn a_probe_that_never_reports_does_not_keep_it_open() {
        let config = BreakerConfig {
            failures: 1,
            ..BreakerConfig::default()
        };
        let breaker = Breaker::new(config, LIMIT);
        breaker.failed(AT(0), AT(0));
        assert_eq!(breaker.admit(AT(1)), Ok(Some(BreakerState::HalfOpen)));
        // It may still be under way: there is never a second one beside it.
        assert_eq!(breaker.admit(AT(5)), Err(Duration::from_secs(1)));
        assert_eq!(breaker.admit(AT(6)), Ok(Some(BreakerState::HalfOpen)));
        // As long as after one that failed: twice two seconds, or as long as a call may take.
        assert_eq!(breaker.admit(AT(6)), Err(LIMIT));
        assert_eq!(breaker.failed(AT(6), AT(7)), Some(BreakerState::Open));
        assert_eq!(breaker.admit(AT(7)), Err(Duration::from_secs(4)));
    }

    #[test]
    fn what_was_sent_before_a_probe_is_not_its_report() {
        let breaker = Breaker::new(BreakerConfig::default(), LIMIT);
        for _ in 0..5 {
            breaker.failed(AT(0), AT(0));
        }
        assert_eq!(breaker.admit(AT(1)), Ok(Some(BreakerState::HalfOpen)));
        assert_eq!(breaker.failed(AT(0), AT(2)), None);
        assert_eq!(breaker.state(AT(2)), BreakerState::HalfOpen);
        assert_eq!(breaker.failed(AT(1), AT(3)), Some(BreakerState::Open));
        assert_eq!(breaker.admit(AT(3)), Err(Duration::from_secs(2)));
    }
}
