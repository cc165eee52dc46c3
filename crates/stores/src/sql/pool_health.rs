//! Which idle connections of a pool are pinged before use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::{Clock, Tick};

/// A connection that was idle for so long is pinged before use.
const IDLE: Duration = Duration::from_secs(5);

/// Pings connections that were idle for long, and those that were idle when another connection
/// broke. A restart or a failover mostly ends them all, and a statement must not meet one dead
/// connection after the other. To ping every time would cost each statement a round trip.
#[derive(Clone)]
pub(crate) struct PoolHealth {
    clock: Arc<dyn Clock>,
    /// When a connection broke last, in microseconds from the clock's origin.
    broke_at: Arc<AtomicU64>,
}

impl PoolHealth {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            broke_at: Arc::default(),
        }
    }

    /// Notes that a connection broke.
    pub(crate) fn note_broken(&self) {
        let now = self.clock.now().since_origin().as_micros();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.broke_at.fetch_max(now, Ordering::Relaxed);
    }

    /// Whether to ping a connection that was idle for so long.
    pub(crate) fn needs_ping(&self, idle_for: Duration) -> bool {
        let broke_at = Duration::from_micros(self.broke_at.load(Ordering::Relaxed));
        idle_for >= self.clock.now().since(Tick::new(broke_at)).min(IDLE)
    }
}
