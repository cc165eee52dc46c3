//! The circuit breaker: after failures in a row, callers no longer wait for a store that is down
//! (P35).
//!
//! Written here because it must take its time from the engine's clock, count only claims, and let
//! exactly one probe through. Adapting a library would take more code.

use std::time::Duration;

use crate::clock::Tick;
use crate::event::BreakerState;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

/// When the breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// Failures in a row that open it. 5.
    pub failures: u32,
    /// How long it stays open before the first probe. 1 s; doubled after each probe that fails.
    pub first_try: Duration,
    /// The longest that it stays open between two probes. 60 s.
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

impl BreakerConfig {
    /// Sets [`failures`](Self::failures).
    #[must_use]
    pub const fn with_failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Sets [`first_try`](Self::first_try).
    #[must_use]
    pub const fn with_first_try(mut self, first_try: Duration) -> Self {
        self.first_try = first_try;
        self
    }

    /// Sets [`open_for`](Self::open_for).
    #[must_use]
    pub const fn with_open_for(mut self, open_for: Duration) -> Self {
        self.open_for = open_for;
        self
    }
}

pub(super) struct Breaker {
    config: BreakerConfig,
    /// How long a probe may take.
    call_limit: Duration,
    /// Zero while the store answers: the hot path reads this without a lock.
    failures: AtomicU32,
    opened: Mutex<Option<OpenCircuit>>,
}

/// The state of a breaker that is open or half-open.
struct OpenCircuit {
    /// When the next probe may be sent, or when the current probe was sent.
    until: Tick,
    /// How long the breaker stays open this time.
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

    /// Admits a claim, or returns how long to wait before the next one. `Some` is the new state if
    /// it changed.
    pub(super) fn admit(&self, now: Tick) -> Result<Option<BreakerState>, Duration> {
        if self.failures.load(Ordering::Relaxed) < self.config.failures {
            return Ok(None);
        }
        match &mut *self.opened.lock() {
            None => Ok(None),
            Some(opened) if now < opened.until => Err(opened.until.since(now)),
            // A probe that never reports, because its caller was cancelled, counts as failed.
            Some(opened) if opened.probing && now < self.probe_timeout(opened) => {
                Err(self.probe_timeout(opened).since(now))
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

    /// The current state.
    pub(super) fn state(&self, now: Tick) -> BreakerState {
        match &*self.opened.lock() {
            None => BreakerState::Closed,
            Some(opened) if opened.probing || now >= opened.until => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    /// The failures in a row so far, and how many open it.
    pub(super) fn failures(&self) -> (u32, u32) {
        (self.failures.load(Ordering::Relaxed), self.config.failures)
    }

    /// Records that the store answered. Returns the new state if that closed the breaker.
    pub(super) fn succeeded(&self) -> Option<BreakerState> {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.opened.lock().take().map(|_| BreakerState::Closed)
    }

    /// Records that a call sent at `sent` got no answer. Returns the new state if that opened the
    /// breaker.
    pub(super) fn failed(&self, sent: Tick, now: Tick) -> Option<BreakerState> {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let mut opened = self.opened.lock();
        let wait = match &*opened {
            // A call that was sent before the probe says nothing about the probe.
            Some(opened) if opened.probing && sent >= opened.until => self.longer(opened.wait),
            None if failures >= self.config.failures => {
                self.config.first_try.min(self.config.open_for)
            }
            _ => return None,
        };
        *opened = Some(OpenCircuit {
            until: now.plus(wait),
            wait,
            probing: false,
        });
        Some(BreakerState::Open)
    }

    /// When a probe without a report counts as failed.
    fn probe_timeout(&self, probe: &OpenCircuit) -> Tick {
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
    fn opens_after_five_failures_and_admits_one_probe() {
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
    fn probe_interval_doubles_up_to_one_minute() {
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
        // A success resets the interval: the next outage begins with a short wait again.
        breaker.succeeded();
        for _ in 0..5 {
            breaker.failed(AT(now), AT(now));
        }
        assert_eq!(breaker.admit(AT(now)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn success_between_failures_resets_the_count() {
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
    fn probe_without_report_counts_as_failed() {
        let config = BreakerConfig {
            failures: 1,
            ..BreakerConfig::default()
        };
        let breaker = Breaker::new(config, LIMIT);
        breaker.failed(AT(0), AT(0));
        assert_eq!(breaker.admit(AT(1)), Ok(Some(BreakerState::HalfOpen)));
        // The first probe may still be in flight, so no second one is sent.
        assert_eq!(breaker.admit(AT(5)), Err(Duration::from_secs(1)));
        assert_eq!(breaker.admit(AT(6)), Ok(Some(BreakerState::HalfOpen)));
        // The same wait as after a failed probe: twice two seconds, or the call limit if that is
        // longer.
        assert_eq!(breaker.admit(AT(6)), Err(LIMIT));
        assert_eq!(breaker.failed(AT(6), AT(7)), Some(BreakerState::Open));
        assert_eq!(breaker.admit(AT(7)), Err(Duration::from_secs(4)));
    }

    #[test]
    fn failure_of_an_earlier_call_is_not_the_probes_report() {
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
