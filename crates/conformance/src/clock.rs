//! Clocks, task spawning and entropy that a test controls.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_core::clock::Sleep;
use semel_core::{BoxFuture, Clock, Entropy, Env, Spawn, Tick, Timestamp};

/// A clock that stands still until [`FakeClock::advance`] moves it. Clones share one time.
///
/// ```
/// use semel_core::Clock;
/// use semel_conformance::clock::FakeClock;
/// use std::time::Duration;
///
/// let clock = FakeClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock.now().since(before), Duration::from_secs(30));
/// ```
#[derive(Clone, Default)]
pub struct FakeClock {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    passed: Duration,
    sleepers: Vec<(Duration, Waker)>,
}

/// Where a fake clock's wall time begins: an ordinary day in 2026.
const EPOCH: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

impl FakeClock {
    /// A clock at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves time forward, and wakes sleepers whose time has come.
    pub fn advance(&self, by: Duration) {
        let mut inner = self.inner.lock();
        inner.passed += by;
        let now = inner.passed;
        let (due, waiting) = inner
            .sleepers
            .drain(..)
            .partition(|(until, _)| *until <= now);
        inner.sleepers = waiting;
        drop(inner);
        let due: Vec<(Duration, Waker)> = due;
        for (_, waker) in due {
            waker.wake();
        }
    }

    /// How many futures sleep on this clock now.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.inner.lock().sleepers.len()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Tick {
        Tick::new(self.inner.lock().passed)
    }

    fn wall(&self) -> Timestamp {
        EPOCH.plus(self.inner.lock().passed)
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        let shared = Arc::clone(&self.inner);
        let until = shared.lock().passed.saturating_add(for_time);
        Box::pin(poll_fn(move |cx| {
            let mut inner = shared.lock();
            if inner.passed >= until {
                return Poll::Ready(());
            }
            inner.sleepers.push((until, cx.waker().clone()));
            Poll::Pending
        }))
    }
}

/// Starts tasks on the Tokio runtime that the test runs in.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// Chance from a seed: the same seed gives the same numbers.
pub struct SeededEntropy {
    rng: Mutex<StdRng>,
}

impl SeededEntropy {
    /// A generator that starts from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }
}

impl Entropy for SeededEntropy {
    fn next_u128(&self) -> u128 {
        self.rng.lock().random()
    }
}

/// An environment for a test: this clock, Tokio's tasks, chance from `seed`.
#[must_use]
pub fn env(clock: &FakeClock, seed: u64) -> Env {
    Env::new(
        Arc::new(clock.clone()),
        Arc::new(TokioSpawn),
        Arc::new(SeededEntropy::new(seed)),
    )
}
