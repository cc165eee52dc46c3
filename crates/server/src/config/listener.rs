//! The settings of the main listener, and of TLS on any listener.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Size, Span, seconds};

/// The main listener.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Listener {
    /// The address and port to listen on.
    #[schemars(extend("format" = "address"))]
    pub address: String,
    /// The prefix of Semel's own paths, which are not forwarded: `/healthz`, `/readyz` and the
    /// protocol API. An empty prefix disables them.
    pub own_path: String,
    /// The maximum size of a request's head.
    pub max_head: Size,
    /// The maximum size of a request's body. Requests with a key have a lower limit of their own,
    /// `defaults.max_body`.
    pub max_body: Size,
    /// How long a request's head may take to arrive, and how long a connection may be idle.
    pub head_timeout: Span,
    /// How long a request's body may pause, and how long a client may stop reading a response.
    pub body_timeout: Span,
    /// Whether to trust and extend `X-Forwarded-*` and similar headers. Otherwise they are
    /// replaced. Enable this only behind another proxy that `trusted_peers` lists.
    pub trust_forwarded: bool,
    /// Addresses and networks (`10.0.0.0/8`) of the proxies in front. Only these peers may set
    /// forwarding headers and the headers that name tenants or principals. Required for both,
    /// unless the listener is on loopback, where an empty list trusts every peer.
    #[schemars(extend("items" = {"type": "string", "format": "network"}))]
    pub trusted_peers: Vec<String>,
    /// Whether to accept header names with underscores. Many services read `a_b` as `a-b`, so a
    /// client could forge a header that only the proxy in front may set.
    pub allow_underscores: bool,
    /// Whether to accept tokens of the protocol API from other machines without TLS. Enable this
    /// only if something else encrypts the connection.
    pub insecure_tokens: bool,
    /// TLS of the main listener.
    pub tls: Tls,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8080".to_owned(),
            own_path: "/_semel".to_owned(),
            tls: Tls::default(),
            max_head: Size(64 * 1024),
            max_body: Size(1 << 30),
            head_timeout: seconds(30),
            body_timeout: seconds(30),
            trust_forwarded: false,
            trusted_peers: Vec::new(),
            allow_underscores: false,
            insecure_tokens: false,
        }
    }
}

impl Listener {
    /// The trusted networks.
    pub(crate) fn peers(&self) -> Vec<ipnet::IpNet> {
        let named = self.trusted_peers.iter();
        named.filter_map(|text| parse_network(text)).collect()
    }

    /// Whether only this machine can reach it.
    pub(crate) fn is_on_loopback(&self) -> bool {
        super::is_loopback(&self.address)
    }
}

/// Reads a network, or a single address.
pub(super) fn parse_network(text: &str) -> Option<ipnet::IpNet> {
    let address = text.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
    text.parse().or(address).ok()
}

/// TLS of a listener. SIGHUP reads the files again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The certificate chain (PEM). Without it there is no TLS.
    #[schemars(extend("format" = "file"))]
    pub cert_file: Option<String>,
    /// The private key (PEM).
    #[schemars(extend("format" = "file"))]
    pub key_file: Option<String>,
    /// The CA certificates (PEM) that verify client certificates (mutual TLS).
    #[schemars(extend("format" = "file"))]
    pub client_ca_file: Option<String>,
    /// Whether clients without a certificate may connect too.
    pub client_optional: bool,
}
