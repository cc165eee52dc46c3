//! A clock that all processes of this machine share, so that their histories can be put together.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use semel::core::clock::Sleep;
use semel::core::{Clock, Tick, Timestamp};

/// The machine's monotonic clock, counted from its start. It is asked of the kernel directly: a process whose C library
/// is made to lie about the time still writes true histories.
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

/// Now, as histories of several processes count.
pub(crate) fn tick() -> u64 {
    let now = MachineClock::shared().now().since_origin().as_nanos();
    u64::try_from(now).unwrap_or(u64::MAX)
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    semel::tokio_env().clock.sleep(time).await;
}
