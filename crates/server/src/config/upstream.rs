//! The settings of the service behind the proxy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Span, seconds};

/// The service that requests are forwarded to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// The URL of the service. Several URLs are replicas of one service, used in turn.
    #[schemars(extend("items" = {"type": "string", "format": "http-url"}))]
    pub urls: Vec<String>,
    /// The HTTP version towards the service.
    pub protocol: Protocol,
    /// Which `Host` header the service gets over HTTP/1.1. `X-Forwarded-Host` always has the
    /// client's.
    pub host: Host,
    /// A file of CA certificates (PEM) that verify the certificate of the service. Default: the
    /// trusted certificates of this machine.
    #[schemars(extend("format" = "file"))]
    pub ca_file: Option<String>,
    /// How long connecting may take, including the TLS handshake. After this timeout nothing was
    /// sent, so a retry is safe.
    pub connect_timeout: Span,
    /// How long the service may take to begin its response. This timeout leaves the outcome
    /// unknown.
    pub response_timeout: Span,
    /// How long an idle connection is kept. Keep this below the idle timeout of the service (5 s in
    /// many frameworks), because a request on a closing connection has an unknown outcome.
    pub idle_timeout: Span,
    /// The maximum number of idle connections for each URL.
    pub max_idle: usize,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            protocol: Protocol::Auto,
            host: Host::Client,
            ca_file: None,
            connect_timeout: seconds(5),
            response_timeout: seconds(60),
            idle_timeout: seconds(4),
            max_idle: 256,
        }
    }
}

/// The HTTP version towards the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1. With TLS, HTTP/2 for gRPC and with `host = "upstream"`.
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, with or without TLS (prior knowledge). For gRPC.
    H2c,
}

/// Which `Host` header the service gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// The one from the client.
    Client,
    /// The host of the service's URL.
    Upstream,
}
