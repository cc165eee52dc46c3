//! [`Upkeep`]: moves recorded durations into their buckets, also if nobody reads the metrics.

use std::sync::atomic::{AtomicU32, Ordering};

use metrics::Histogram;
use metrics_exporter_prometheus::PrometheusHandle;

/// How many durations wait at most. Each takes memory until it is in its bucket, and one event
/// pays for moving them all.
const MAX_WAITING: u32 = 1_024;

/// Records durations within a bound on memory.
pub(crate) struct Upkeep {
    handle: PrometheusHandle,
    recorded: AtomicU32,
}

impl Upkeep {
    pub(crate) const fn new(handle: PrometheusHandle) -> Self {
        Self {
            handle,
            recorded: AtomicU32::new(0),
        }
    }

    /// Records a duration. Returns whether all durations were moved into their buckets.
    pub(crate) fn record(&self, histogram: &Histogram, took: std::time::Duration) -> bool {
        histogram.record(took);
        let is_due = self.recorded.fetch_add(1, Ordering::Relaxed) % MAX_WAITING == MAX_WAITING - 1;
        if is_due {
            self.handle.run_upkeep();
        }
        is_due
    }

    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// How many durations were recorded so far.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> u32 {
        self.recorded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn durations_never_wait_in_large_numbers() {
        let upkeep = Upkeep::new(PrometheusBuilder::new().build_recorder().handle());
        let histogram = Histogram::noop();
        let record = |_| upkeep.record(&histogram, Duration::from_millis(1));
        let runs = (0..10 * MAX_WAITING).map(record).filter(|ran| *ran);
        assert_eq!(runs.count(), 10);
    }
}
