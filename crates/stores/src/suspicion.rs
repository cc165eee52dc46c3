//! Which connection of a pool is tried before it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::{Clock, Tick};

/// After so long in the pool a connection is tried before it is used.
const IDLE: Duration = Duration::from_secs(5);

/// Trying every connection would cost each statement a round trip. Tried are those that waited long, and those that
/// were waiting when another one broke: what ended that one (a restart, a failover, an administrator) mostly ended
/// them too, and a statement that is sent again on one dead connection after the other gives up before it meets one
/// that lives.
#[derive(Clone)]
pub(crate) struct Suspicion {
    clock: Arc<dyn Clock>,
    /// When a connection broke last, in microseconds from the clock's origin; the origin lies before all of them.
    broke: Arc<AtomicU64>,
}

impl Suspicion {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            broke: Arc::default(),
        }
    }

    /// A connection broke just now.
    pub(crate) fn raise(&self) {
        let now = self.clock.now().since_origin().as_micros();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.broke.fetch_max(now, Ordering::Relaxed);
    }

    /// Whether to try a connection that waited in the pool for so long.
    pub(crate) fn falls_on(&self, idle_for: Duration) -> bool {
        let broke = Tick::new(Duration::from_micros(self.broke.load(Ordering::Relaxed)));
        idle_for >= self.clock.now().since(broke).min(IDLE)
    }
}
