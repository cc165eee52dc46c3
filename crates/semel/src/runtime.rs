//! Tokio as the engine's environment.

use std::sync::Arc;
use std::time::Duration;

use semel_core::clock::{Sleep, SystemTime};
use semel_core::env::SystemEntropy;
use semel_core::{BoxFuture, Clock, Env, Spawn, Tick, Timestamp};

/// The machine's clocks, Tokio's tasks and timers, and the operating system's randomness.
///
/// Tasks start on the runtime that the call which starts them runs in.
#[must_use]
pub fn tokio_env() -> Env {
    Env::new(
        Arc::new(TokioClock(SystemTime::default())),
        Arc::new(TokioSpawn),
        Arc::new(SystemEntropy),
    )
}

struct TokioClock(SystemTime);

impl Clock for TokioClock {
    /// Advances while the machine is suspended, if the platform has such a clock. The store's clock
    /// does, so an owner's deadline must as well (P30).
    #[cfg(target_os = "linux")]
    fn now(&self) -> Tick {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Tick::new(Duration::new(seconds, nanos))
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others are told to use"
    )]
    fn sleep(&self, for_time: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(for_time))
    }
}

struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Seconds since the machine was started, those included in which it was suspended.
    fn uptime() -> f64 {
        let text = std::fs::read_to_string("/proc/uptime").expect("Linux tells");
        let first = text.split(' ').next().expect("a number");
        first.parse().expect("a number")
    }

    #[test]
    fn clock_advances_while_the_machine_is_suspended() {
        let clock = tokio_env().clock;
        let before = uptime();
        let now = clock.now().since_origin().as_secs_f64();
        let after = uptime();
        // The kernel tells it in hundredths.
        let range = before - 0.02..=after + 0.02;
        assert!(range.contains(&now), "{now} is not in {range:?}");
    }
}
