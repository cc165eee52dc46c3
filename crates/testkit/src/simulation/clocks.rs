//! Faulty clocks: each node's runs fast or slow, and the store's jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};
use semel_core::clock::Sleep;
use semel_core::{BoxFuture, Clock, Entropy, Spawn, Tick, Timestamp};

use super::sched::{Micros, Place, Sched};

/// What the store's clock says when the world begins: an ordinary day in 2026.
const EPOCH: u64 = 1_790_000_000_000_000;

const MILLION: i128 = 1_000_000;

/// A node's own clock: runs by a constant share too fast or too slow, and began at its own zero.
#[derive(Clone)]
pub(super) struct NodeClock {
    pub(super) sched: Sched,
    /// Parts in a million that it runs too fast.
    pub(super) drift: i64,
    /// What it said when the world began.
    pub(super) skew: Micros,
}

impl NodeClock {
    fn micros(&self) -> Micros {
        let world = i128::from(self.sched.now());
        let passed = world * (MILLION + i128::from(self.drift)) / MILLION;
        self.skew + u64::try_from(passed).unwrap_or(0)
    }

    /// How long the world takes for `span` of this clock, rounded up.
    fn in_the_world(&self, span: Micros) -> Micros {
        let rate = MILLION + i128::from(self.drift);
        let world = (i128::from(span) * MILLION).div_euclid(rate) + 1;
        u64::try_from(world).unwrap_or(u64::MAX)
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Tick {
        Tick::new(Duration::from_micros(self.micros()))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(EPOCH + self.micros())
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        Box::pin(self.sched.sleep(self.in_the_world(micros(for_time))))
    }
}

/// In microseconds, rounded up.
pub(super) fn micros(span: Duration) -> Micros {
    u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// The store's clock: the world's, as set by whoever set it last.
#[derive(Clone)]
pub(super) struct StoreClock {
    pub(super) sched: Sched,
    /// What it said at the world's zero, had it always been set as it is now.
    set: Arc<AtomicU64>,
}

impl StoreClock {
    pub(super) fn new(sched: Sched) -> Self {
        Self {
            sched,
            set: Arc::new(AtomicU64::new(EPOCH)),
        }
    }

    /// Sets it forward.
    pub(super) fn forward(&self, by: Micros) {
        self.set.fetch_add(by, Ordering::Relaxed);
    }

    /// Sets it back.
    pub(super) fn back(&self, by: Micros) {
        self.set.fetch_sub(by, Ordering::Relaxed);
    }

    pub(super) fn micros(&self) -> Micros {
        self.set.load(Ordering::Relaxed) + self.sched.now()
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Tick {
        Tick::new(Duration::from_micros(self.sched.now()))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.micros())
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        Box::pin(self.sched.sleep(micros(for_time)))
    }
}

/// Starts a node's tasks: they end with it.
pub(super) struct NodeTasks {
    pub(super) sched: Sched,
    pub(super) place: Place,
}

impl Spawn for NodeTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.sched.spawn(self.place, task);
    }
}

/// All chance of a world: one generator, from its seed.
#[derive(Clone)]
pub(super) struct Dice {
    rng: Arc<Mutex<StdRng>>,
}

impl Dice {
    pub(super) fn new(rng: StdRng) -> Self {
        Self {
            rng: Arc::new(Mutex::new(rng)),
        }
    }

    /// A number below `past`; 0 where there is none.
    pub(super) fn below(&self, past: u64) -> u64 {
        match past {
            0 | 1 => 0,
            past => self.rng.lock().random_range(0..past),
        }
    }

    /// An index below `past`.
    pub(super) fn index(&self, past: usize) -> usize {
        usize::try_from(self.below(past as u64)).unwrap_or(0)
    }

    /// Whether one of `many` equal chances came.
    pub(super) fn one_in(&self, many: u64) -> bool {
        self.below(many.max(1)) == 0
    }

    /// Whether a chance of `of` in 1,000 came.
    pub(super) fn per_mille(&self, of: u32) -> bool {
        of > 0 && self.rng.lock().next_u32() % 1000 < of
    }

    /// A span up to `most`: often short, sometimes all of it.
    pub(super) fn span(&self, most: Micros) -> Micros {
        let shift = self.below(8);
        self.below((most >> shift).max(1))
    }
}

impl Entropy for Dice {
    fn next_u128(&self) -> u128 {
        self.rng.lock().random()
    }
}
