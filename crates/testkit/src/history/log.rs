//! [`HistoryLog`]: collects a history while it happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use semel_core::Clock;

use super::callers::CallerReport;
use super::event::History;
use super::lines::{Line, Pen};

/// Where calls and effects are written down. Clones share one history.
#[derive(Clone)]
pub struct HistoryLog {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    tick: AtomicU64,
    clock: Arc<dyn Clock>,
    pub(super) history: Mutex<History>,
    /// Where a process writes that may be killed; then `history` stays empty.
    pub(super) pen: Option<Pen>,
}

impl HistoryLog {
    /// An empty log. `clock` must run as fast as the store's: spans on it are compared with leases
    /// and retentions.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::over(clock, None)
    }

    /// A log of a process that may be killed: each thing is written as a [`Line`] to `out` before
    /// it is acted on, and not kept. `clock` must be one that all processes of the history can
    /// read: its time in nanoseconds is the tick.
    #[must_use]
    pub fn in_lines(clock: Arc<dyn Clock>, out: Box<dyn std::io::Write + Send>) -> Self {
        Self::over(clock, Some(Pen::new(out)))
    }

    fn over(clock: Arc<dyn Clock>, pen: Option<Pen>) -> Self {
        let (tick, history) = (AtomicU64::new(1), Mutex::default());
        Self {
            shared: Arc::new(Shared {
                tick,
                clock,
                history,
                pen,
            }),
        }
    }

    /// Records what a caller was told; kept only by a log [in lines](Self::in_lines).
    pub fn record_report(&self, report: CallerReport) {
        if let Some(pen) = &self.shared.pen {
            pen.write(&Line::Told(report));
        }
    }

    /// What happened so far. Calls that are under way count as unanswered.
    #[must_use]
    pub fn history(&self) -> History {
        self.shared.history.lock().clone()
    }

    /// The moment, as this history counts them.
    #[must_use]
    pub fn tick(&self) -> u64 {
        if self.shared.pen.is_some() {
            let passed = self.shared.clock.now().since_origin().as_nanos();
            return u64::try_from(passed).unwrap_or(u64::MAX);
        }
        self.shared.tick.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn time(&self) -> u64 {
        let passed = self.shared.clock.now().since_origin().as_micros();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

impl std::fmt::Debug for HistoryLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let history = self.shared.history.lock();
        write!(
            f,
            "Log({} calls, {} effects)",
            history.calls.len(),
            history.effects.len()
        )
    }
}
