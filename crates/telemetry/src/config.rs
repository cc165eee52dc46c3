//! [`TelemetryConfig`]: what is measured, and what is logged.

use std::time::Duration;

/// What is measured, and what is logged. Times and percentages are the sidecar's defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TelemetryConfig {
    /// The kind of store, such as `redis`: the label `backend` of the store's metrics and log
    /// lines.
    pub backend: &'static str,
    /// The maximum number of scopes with time series of their own. All others are counted as
    /// `other`.
    pub max_scopes: usize,
    /// Whether metrics have a `tenant` label too. `max_scopes` then limits the pairs of scope and
    /// tenant.
    pub by_tenant: bool,
    /// Store calls that take this long are logged as slow.
    pub slow_store: Duration,
    /// Waits for a running request with the same key that take this long are logged.
    pub slow_wait: Duration,
    /// The percentage of keys whose requests get debug lines, if the subscriber takes those.
    pub debug_percent: u8,
    /// The percentage of keys whose runs and replays get a line. Errors are always logged.
    pub requests_percent: u8,
}

impl TelemetryConfig {
    /// The defaults, for a store of this kind.
    #[must_use]
    pub const fn new(backend: &'static str) -> Self {
        Self {
            backend,
            max_scopes: 64,
            by_tenant: false,
            slow_store: Duration::from_millis(500),
            slow_wait: Duration::from_secs(1),
            debug_percent: 1,
            requests_percent: 100,
        }
    }

    /// With another maximum number of scopes.
    #[must_use]
    pub const fn with_max_scopes(mut self, max_scopes: usize) -> Self {
        self.max_scopes = max_scopes;
        self
    }

    /// With a `tenant` label, or without.
    #[must_use]
    pub const fn with_by_tenant(mut self, by_tenant: bool) -> Self {
        self.by_tenant = by_tenant;
        self
    }

    /// With another time from which store calls are slow.
    #[must_use]
    pub const fn with_slow_store(mut self, slow_store: Duration) -> Self {
        self.slow_store = slow_store;
        self
    }

    /// With another time from which waits are slow.
    #[must_use]
    pub const fn with_slow_wait(mut self, slow_wait: Duration) -> Self {
        self.slow_wait = slow_wait;
        self
    }

    /// With debug lines for another percentage of keys.
    #[must_use]
    pub const fn with_debug_percent(mut self, debug_percent: u8) -> Self {
        self.debug_percent = debug_percent;
        self
    }

    /// With lines of runs and replays for another percentage of keys.
    #[must_use]
    pub const fn with_requests_percent(mut self, requests_percent: u8) -> Self {
        self.requests_percent = requests_percent;
        self
    }
}
