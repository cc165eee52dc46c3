//! What a seed decides before anything happens: how many, how long, which faults, how often.
//!
//! Each seed has its own mixture. A world in which every fault is likely hides what needs a quiet
//! one, so faults are left out as often as they are let in.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::clocks::Dice;
use super::sched::Micros;

const MILLI: Micros = 1_000;
const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;

/// The mixture of one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) requests: u64,
    pub(super) lease: Micros,
    pub(super) retention: Micros,
    pub(super) attempts: u16,
    pub(super) wait: Micros,
    pub(super) waiters: usize,
    pub(super) call_limit: Micros,
    pub(super) breaker_failures: u32,
    pub(super) most_answer_bytes: usize,
    pub(super) cache: bool,
    pub(super) capacity: Option<usize>,
    pub(super) fail_open: bool,
    /// One record may be damaged.
    pub(super) spoils: bool,
    /// Nothing goes wrong, and everything has to be quick.
    pub(super) calm: bool,
    pub(super) faults: Rates,
}

/// How likely each fault is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Of a message, in 1,000: each way.
    pub(super) lost: u32,
    pub(super) twice: u32,
    pub(super) refused: u32,
    pub(super) slow: u32,
    pub(super) cut: u32,
    pub(super) wake_lost: u32,
    /// Steps of nodes between two strikes, on average; 0 for none.
    pub(super) strike_every: u64,
    /// What strikes: how many parts each.
    pub(super) crash: u32,
    pub(super) pause: u32,
    pub(super) partition: u32,
    pub(super) store_restart: u32,
    pub(super) jump_forward: u32,
    pub(super) jump_back: u32,
    pub(super) operator: u32,
    /// Parts in a million that a node's clock is wrong at most.
    pub(super) drift: u64,
}

impl Plan {
    /// The mixture of `seed`, and the dice for all that follows.
    pub(super) fn of(seed: u64) -> (Self, Dice) {
        let dice = Dice::new(StdRng::seed_from_u64(seed));
        let calm = dice.one_in(6);
        let lease = [200 * MILLI, SECOND, 5 * SECOND, 30 * SECOND][dice.index(4)];
        let retention = [lease, lease * 3, lease * 20, HOUR, 24 * HOUR][dice.index(5)];
        let keys = 4 + 2 * dice.index(4);
        let plan = Self {
            nodes: 2 + dice.index(3),
            clients: 3 + dice.index(5),
            keys,
            requests: 25 + dice.below(25),
            lease,
            retention: retention.max(lease),
            attempts: [1, 2, 5][dice.index(3)],
            wait: [lease / 2, lease * 3, 30 * SECOND][dice.index(3)],
            waiters: [1, 10][dice.index(2)],
            call_limit: [500 * MILLI, 5 * SECOND][dice.index(2)],
            breaker_failures: [5, 1000][dice.index(2)],
            most_answer_bytes: [64, 1 << 20][usize::from(!dice.one_in(8))],
            cache: !dice.one_in(3),
            capacity: dice.one_in(8).then_some(keys - 2),
            fail_open: dice.one_in(8),
            spoils: dice.one_in(4),
            calm,
            faults: if calm {
                Rates::default()
            } else {
                Rates::roll(&dice)
            },
        };
        (plan, dice)
    }

    pub(super) const fn lease(&self) -> Duration {
        Duration::from_micros(self.lease)
    }

    pub(super) const fn retention(&self) -> Duration {
        Duration::from_micros(self.retention)
    }
}

impl Rates {
    fn roll(dice: &Dice) -> Self {
        let rate = || [0, 5, 30, 120][dice.index(4)];
        let parts = || [0, 1, 4][dice.index(3)];
        Self {
            lost: rate(),
            twice: rate(),
            refused: rate(),
            slow: rate(),
            cut: rate(),
            wake_lost: rate(),
            strike_every: [0, 1500, 400, 120][dice.index(4)],
            crash: parts(),
            pause: parts(),
            partition: parts(),
            store_restart: parts(),
            jump_forward: parts() * u32::from(dice.one_in(3)),
            jump_back: parts() * u32::from(dice.one_in(3)),
            operator: parts(),
            drift: [0, 200, 30_000][dice.index(3)],
        }
    }
}
