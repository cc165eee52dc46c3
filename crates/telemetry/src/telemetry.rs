//! [`Telemetry`]: the observer that counts and logs.

use semel_core::event::{Event, Observer};

use crate::{EventLog, Meter, TelemetryConfig};

/// Metrics and log lines of one engine or several.
#[derive(Debug)]
pub struct Telemetry {
    meter: Meter,
    log: EventLog,
}

impl Telemetry {
    /// Creates the observer, with its metrics at zero.
    #[must_use]
    pub fn new(config: &TelemetryConfig) -> Self {
        Self {
            meter: Meter::new(config),
            log: EventLog::new(config),
        }
    }

    /// All metrics in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        self.meter.render()
    }
}

impl Observer for Telemetry {
    fn observe(&self, event: &Event<'_>) {
        self.meter.observe(event);
        self.log.observe(event);
    }
}
