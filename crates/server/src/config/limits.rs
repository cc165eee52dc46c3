//! The limits of the process, and each caller's share of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tree::seconds;
use super::units::{Size, Span};

/// How much is taken at a time, and how much of that one caller may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most connections at a time, WebSockets among them. Past it, a few more are told so (503); health checks are answered.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// The most of them from one address (of IPv6, one /64 network). `listener.trusted_peers` may have all.
    #[schemars(range(min = 1))]
    pub connections_per_address: usize,
    /// The most requests under way at a time, with a key or without, from their heads to the ends of their answers; those with a key also when their clients have left. This bounds the connections to the service too. Past it, 503.
    #[schemars(range(min = 1))]
    pub requests: usize,
    /// The most requests with a key that are with the service at a time: they go on also when their clients have left. More wait for `upstream.connect_timeout`, and are then told so (503); nothing was sent.
    #[schemars(range(min = 1))]
    pub running: usize,
    /// The most callers that wait for another's run, over all keys.
    #[schemars(range(min = 1))]
    pub waiting: usize,
    /// The most bytes of bodies of requests with a key, which are held in memory. Past it, 503.
    pub buffered: Size,
    /// Percent of `requests`, `running`, `waiting` and `buffered` that one tenant may have, where `tenants` says how to find them; whoever names none counts as one. Past it, 429. 100 where there is only one.
    #[schemars(range(min = 1, max = 100))]
    pub tenant_share: u8,
    /// The same for one principal (but not of `waiting`), where `principals` says how to find them.
    #[schemars(range(min = 1, max = 100))]
    pub principal_share: u8,
    /// The same for one address: the peer's, or what `X-Forwarded-For` says last where `trust_forwarded` lets it. 100 is for whoever is behind a proxy that doesn't say.
    #[schemars(range(min = 1, max = 100))]
    pub address_share: u8,
    /// The most requests a second of one tenant, and as many at once. Past it, 429. Any number where not set.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tenant_rate: Option<u32>,
    /// The same for one principal.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub principal_rate: Option<u32>,
    /// The same for one address.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub address_rate: Option<u32>,
    /// The fewest bytes a second of a request's body, over `listener.body_timeout`; slower ones are cut. gRPC's streams may be slow. `0B` lets all be.
    pub body_rate: Size,
    /// How long a connection may live before its client is asked to make another. What runs on it is finished.
    pub connection_age: Span,
    /// How long nothing may pass through a WebSocket.
    pub tunnel_idle: Span,
    /// How long a WebSocket may live.
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
            body_rate: Size(100),
            connection_age: seconds(60 * 60),
            tunnel_idle: seconds(10 * 60),
            tunnel_age: seconds(24 * 60 * 60),
        }
    }
}

impl Limits {
    /// What a share of so many percent comes to; at least one.
    pub(crate) fn share_of(percent: u8, all: usize) -> usize {
        (all.saturating_mul(usize::from(percent)) / 100).max(1)
    }
}
