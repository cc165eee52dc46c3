//! The settings of the log, the metrics and the traces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Span, seconds};

/// The log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The format of a line.
    pub format: LogFormat,
    /// The log level: `error`, `warn`, `info`, `debug` or `trace`, also by module, such as
    /// `info,semel_server=debug`.
    pub level: String,
    /// The percentage of keys whose requests get debug lines, if `level` includes them. A key gets
    /// all its lines or none.
    #[schemars(range(max = 100))]
    pub debug_percent: u8,
    /// The percentage of keys whose runs and replays get a line. Errors are always logged.
    #[schemars(range(max = 100))]
    pub requests_percent: u8,
    /// Store calls that take this long are logged as slow.
    pub slow_store: Span,
    /// Waits for a running request with the same key that take this long are logged.
    pub slow_wait: Span,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Auto,
            level: "info".to_owned(),
            debug_percent: 1,
            requests_percent: 100,
            slow_store: Span(std::time::Duration::from_millis(500)),
            slow_wait: seconds(1),
        }
    }
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, otherwise JSON.
    Auto,
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Metrics for Prometheus.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Who may read `/metrics` on the admin listener.
    pub access: MetricsAccess,
    /// The maximum number of scopes with time series of their own. All others are counted as
    /// `other`.
    #[schemars(range(min = 1, max = 10000))]
    pub max_scopes: usize,
    /// Whether metrics have a `tenant` label too. `max_scopes` then limits the pairs of scope and
    /// tenant.
    pub by_tenant: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            access: MetricsAccess::Admin,
            max_scopes: 64,
            by_tenant: false,
        }
    }
}

/// Who may read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// Nobody. Metrics are disabled.
    Off,
    /// Callers of the admin API, with its token or certificate. Without either, callers on this
    /// machine.
    Admin,
    /// Everybody who can reach the admin listener, without a token. Metrics show scopes and
    /// volumes, but no keys.
    Open,
}

/// Traces for OpenTelemetry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// The base URL of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`. Without it there are
    /// no traces, and the client's `traceparent` passes unchanged.
    #[schemars(extend("format" = "http-url"))]
    pub otlp_endpoint: Option<String>,
    /// The percentage of requests that start a trace. If the client sent a trace, its sampling
    /// decision applies.
    #[schemars(range(max = 100))]
    pub sample_percent: u8,
    /// The service name in traces.
    pub service_name: String,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            sample_percent: 100,
            service_name: "semel".to_owned(),
        }
    }
}
