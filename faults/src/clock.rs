//! A clock that all processes of this machine share, so that their histories can be merged; and
//! the jumps of clocks.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use semel::core::clock::Sleep;
use semel::core::{Clock, Tick, Timestamp};

/// The machine's monotonic clock. It asks the kernel directly, so that a process with a faked C
/// library clock still writes true histories.
pub(crate) struct MachineClock(Arc<dyn Clock>);

impl MachineClock {
    pub(crate) fn shared() -> Arc<dyn Clock> {
        Arc::new(Self(semel::tokio_env().clock))
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Tick {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Tick::new(Duration::new(seconds, nanos))
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        self.0.sleep(for_time)
    }
}

/// The current time in a history.
pub(crate) fn tick() -> u64 {
    let now = MachineClock::shared().now().since_origin().as_nanos();
    u64::try_from(now).unwrap_or(u64::MAX)
}

/// Sleeps.
pub(crate) async fn pass(time: Duration) {
    semel::tokio_env().clock.sleep(time).await;
}

/// A store's clock was set by this much, at some moment between two ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockJump {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) micros: i64,
}

impl ClockJump {
    pub(crate) const fn of_seconds(from: u64, to: u64, seconds: i64) -> Self {
        Self {
            from,
            to,
            micros: seconds * 1_000_000,
        }
    }
}

/// How often the machine's clock is compared with its monotonic clock.
const LOOK: Duration = Duration::from_millis(5);
/// Smaller differences belong to the comparison itself, and to the slack of the checker.
const LEAST_JUMP_MICROS: i64 = 2_000;

/// The longest time between readings of two clocks that are compared.
const AT_ONCE_NANOS: u64 = 500_000;

/// Notices that the machine's wall clock was set, for example because a virtual machine was halted
/// for a while. Stores count leases by that clock.
#[derive(Debug)]
pub(crate) struct WallClockWatch {
    tick: u64,
    /// The wall clock less the monotonic clock.
    offset: i64,
}

impl WallClockWatch {
    pub(crate) fn start() -> Self {
        let (tick, offset) = Self::look();
        Self { tick, offset }
    }

    /// Waits for the next jump.
    pub(crate) async fn next(&mut self) -> ClockJump {
        loop {
            pass(LOOK).await;
            if let Some(jump) = self.compare(Self::look()) {
                return jump;
            }
        }
    }

    /// The jump since the last comparison.
    fn compare(&mut self, (tick, offset): (u64, i64)) -> Option<ClockJump> {
        let (from, micros) = (self.tick, offset - self.offset);
        self.tick = tick;
        if micros.abs() < LEAST_JUMP_MICROS {
            // Compared with the same offset again: many small steps make a large one.
            return None;
        }
        self.offset = offset;
        Some(ClockJump {
            from,
            to: tick,
            micros,
        })
    }

    /// Reads both clocks at one moment: again, if this thread was interrupted in between.
    fn look() -> (u64, i64) {
        loop {
            let before = tick();
            let wall = clock_gettime(ClockId::Realtime);
            let after = tick();
            if after - before < AT_ONCE_NANOS {
                let micros = wall.tv_sec * 1_000_000 + wall.tv_nsec / 1_000;
                let monotonic = i64::try_from(after / 1_000).unwrap_or(i64::MAX);
                return (after, micros - monotonic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_was_set_is_noticed_once() {
        let mut watch = WallClockWatch {
            tick: 1_000,
            offset: 50,
        };
        assert_eq!(watch.compare((2_000, 60)), None);
        let jump = ClockJump {
            from: 2_000,
            to: 3_000,
            micros: 32_000_000,
        };
        assert_eq!(watch.compare((3_000, 32_000_050)), Some(jump));
        assert_eq!(watch.compare((4_000, 32_000_055)), None);
        let back = watch.compare((5_000, 50)).map(|jump| jump.micros);
        assert_eq!(back, Some(-32_000_000));
    }
}
