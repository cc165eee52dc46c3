//! The limits of the process: concurrency, memory and rates, and each caller's share of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Size, Span, seconds};

/// Limits on concurrent work and request rates, for the process and for each caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The maximum number of connections, including WebSockets. A few more connections get 503;
    /// health probes are still answered.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// The maximum number of connections from one address, or from one /64 network of IPv6. It does
    /// not apply to `listener.trusted_peers`.
    #[schemars(range(min = 1))]
    pub connections_per_address: usize,
    /// The maximum number of concurrent requests, from the head to the end of the response.
    /// Requests with a key count even after their client has disconnected. At most as many
    /// connections to the service are in use. Further requests get 503.
    #[schemars(range(min = 1))]
    pub requests: usize,
    /// The maximum number of requests with a key that the service processes at the same time. They
    /// continue even if their client disconnects. Further requests wait for
    /// `upstream.connect_timeout` and then get 503; nothing was sent.
    #[schemars(range(min = 1))]
    pub running: usize,
    /// The maximum number of requests that wait for a running request with the same key, over all
    /// keys.
    #[schemars(range(min = 1))]
    pub waiting: usize,
    /// The maximum memory for bodies of requests with a key. Further requests get 503.
    pub buffered: Size,
    /// The percentage of `requests`, `running`, `waiting` and `buffered` that one tenant may use,
    /// if `tenants` is set. Requests without a tenant count as one tenant. Further requests get
    /// 429. Use 100 if there is only one tenant.
    #[schemars(range(min = 1, max = 100))]
    pub tenant_share: u8,
    /// The same for one principal, if `principals` is set. It does not apply to `waiting`.
    #[schemars(range(min = 1, max = 100))]
    pub principal_share: u8,
    /// The same for one address: the last one in `X-Forwarded-For` with `trust_forwarded`,
    /// otherwise the address of the peer. Use 100 behind a proxy that does not send
    /// `X-Forwarded-For`.
    #[schemars(range(min = 1, max = 100))]
    pub address_share: u8,
    /// The maximum number of requests per second of one tenant, also as a burst. Further requests
    /// get 429. Unlimited if not set.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tenant_rate: Option<u32>,
    /// The same for one principal.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub principal_rate: Option<u32>,
    /// The same for one address.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub address_rate: Option<u32>,
    /// The maximum number of new keys of one tenant within `quota_window`. Further new keys get
    /// 429; keys that the store has are still answered. Each process counts on its own. Unlimited
    /// if not set.
    #[schemars(range(min = 1))]
    pub tenant_keys: Option<u64>,
    /// The same for one principal.
    #[schemars(range(min = 1))]
    pub principal_keys: Option<u64>,
    /// The same for one address.
    #[schemars(range(min = 1))]
    pub address_keys: Option<u64>,
    /// The maximum bytes of responses to new keys of one tenant within `quota_window`. Unlimited if
    /// not set.
    pub tenant_stored: Option<Size>,
    /// The same for one principal.
    pub principal_stored: Option<Size>,
    /// The same for one address.
    pub address_stored: Option<Size>,
    /// The window of these quotas. Set it to the retention, so that they limit what is in the
    /// store.
    pub quota_window: Span,
    /// The minimum rate of a request's body, in bytes per second, measured over
    /// `listener.body_timeout`. Slower requests are cut off. It does not apply to gRPC. `0B`
    /// disables it.
    pub body_rate: Size,
    /// The maximum age of a connection. Then the client is asked to reconnect, and running requests
    /// finish.
    pub connection_age: Span,
    /// How long a WebSocket may be idle.
    pub tunnel_idle: Span,
    /// The maximum age of a WebSocket.
    pub tunnel_age: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 5_000,
            requests: 4_096,
            running: 400,
            waiting: 1_024,
            buffered: Size(256 * 1024 * 1024),
            tenant_share: 50,
            principal_share: 50,
            address_share: 100,
            tenant_rate: None,
            principal_rate: None,
            address_rate: None,
            tenant_keys: None,
            principal_keys: None,
            address_keys: None,
            tenant_stored: None,
            principal_stored: None,
            address_stored: None,
            quota_window: seconds(24 * 60 * 60),
            body_rate: Size(100),
            connection_age: seconds(60 * 60),
            tunnel_idle: seconds(10 * 60),
            tunnel_age: seconds(24 * 60 * 60),
        }
    }
}

impl Limits {
    /// The given percentage of `all`, and at least one.
    pub(crate) fn compute_share(percent: u8, all: usize) -> usize {
        (all.saturating_mul(usize::from(percent)) / 100).max(1)
    }
}
