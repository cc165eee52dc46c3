//! The settings of what is seen: log, metrics, traces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tree::seconds;
use super::units::Span;

/// What is logged, and how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The form of a line.
    pub format: LogFormat,
    /// Which lines: `error`, `warn`, `info`, `debug`, `trace`, or by module, such as `info,semel_server=debug`.
    pub level: String,
    /// Of how many keys in a hundred the debug lines about requests are written, where `level` lets them. All lines of a key are, or none.
    #[schemars(range(max = 100))]
    pub debug_percent: u8,
    /// Of how many keys in a hundred each run and each replay gets a line. What goes wrong always does.
    #[schemars(range(max = 100))]
    pub requests_percent: u8,
    /// A store call that takes this long is logged as slow.
    pub slow_store: Span,
    /// A wait for another's run that takes this long is logged.
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

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Figures for Prometheus.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Who may read `/metrics` on the admin listener.
    pub access: MetricsAccess,
    /// The most scopes with figures of their own; the others are counted together as `other`.
    #[schemars(range(min = 1, max = 10000))]
    pub max_scopes: usize,
    /// Whether figures are told apart by tenant too: `max_scopes` then bounds the pairs.
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
    /// Nobody: nothing is counted.
    Off,
    /// Whoever may call the admin API: with its token or certificate, or, where there is neither, from this machine.
    Admin,
    /// Everybody who reaches the admin listener, without a token. They show scopes and how much is done, never keys.
    Open,
}

/// Traces for OpenTelemetry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// Where spans are sent: the base of an OTLP receiver over HTTP, such as `http://127.0.0.1:4318`. Without one there are none, and the client's `traceparent` passes as it is.
    #[schemars(extend("format" = "http-url"))]
    pub otlp_endpoint: Option<String>,
    /// Of how many requests in a hundred a trace is begun. Where the client began one, its choice counts.
    #[schemars(range(max = 100))]
    pub sample_percent: u8,
    /// What this process is called in them.
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
