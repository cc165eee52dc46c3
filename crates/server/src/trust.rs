//! Trust in request headers: which peers may set forwarding and identity headers. Removes the
//! others'.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName};
use http::{Request, Response};
use ipnet::IpNet;
use semel::core::Code;
use semel::http::Body;

use crate::config::{Config, IdentitySource, Protocol};
use crate::web::{Peer, problem_response, remove_unless};

/// Headers that name the origin of a request, besides `X-Forwarded-*`. Only trusted proxies may set
/// them.
static FORWARDING: [HeaderName; 14] = [
    http::header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-cluster-client-ip"),
    HeaderName::from_static("x-envoy-external-address"),
    HeaderName::from_static("x-envoy-original-path"),
    HeaderName::from_static("x-azure-clientip"),
    HeaderName::from_static("x-original-forwarded-for"),
    HeaderName::from_static("x-original-host"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("fastly-client-ip"),
];

/// Which peers are trusted, and with which headers.
pub(crate) struct TrustPolicy {
    /// The trusted networks.
    trusted: Vec<IpNet>,
    trusts_everybody: bool,
    trust_forwarded: bool,
    /// The headers that name the tenant or the principal.
    identity_headers: Vec<HeaderName>,
    accepts_underscores: bool,
}

impl TrustPolicy {
    pub(crate) fn new(config: &Config) -> Self {
        let listener = &config.listener;
        let named = [&config.tenants, &config.principals].into_iter();
        let named = named.filter(|identity| identity.from == IdentitySource::Header);
        let named = named.filter_map(|identity| identity.header.as_deref()?.parse().ok());
        Self {
            trusted: listener.peers(),
            trusts_everybody: listener.trusted_peers.is_empty() && listener.is_on_loopback(),
            trust_forwarded: listener.trust_forwarded,
            identity_headers: named.collect(),
            // gRPC metadata names may have underscores, and gRPC services do not read them as
            // hyphens.
            accepts_underscores: listener.allow_underscores
                || config.upstream.protocol == Protocol::H2c,
        }
    }

    /// Removes the headers that this peer may not set.
    ///
    /// # Errors
    /// The response to a request that is refused.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal is the response itself, and rare"
    )]
    pub(crate) fn sanitize<B>(&self, request: &mut Request<B>) -> Result<(), Response<Body>> {
        let has_underscore = |name: &HeaderName| name.as_str().contains('_');
        if !self.accepts_underscores && request.headers().keys().any(has_underscore) {
            return Err(underscore_response());
        }
        let is_trusted = self.is_trusted(request.extensions().get());
        if is_trusted && self.trust_forwarded {
            return Ok(());
        }
        let keeps = |name: &HeaderName| match self.identity_headers.contains(name) {
            true => is_trusted,
            false => !is_forwarding(name),
        };
        remove_unless(request.headers_mut(), keeps);
        Ok(())
    }

    /// The address of the client: as a trusted proxy names it, or else the peer's own.
    pub(crate) fn client_address<B>(&self, request: &Request<B>) -> Option<IpAddr> {
        let peer = request.extensions().get::<Peer>();
        let forwarded = match self.trust_forwarded && self.is_trusted(peer) {
            true => forwarded_address(request.headers()),
            false => None,
        };
        forwarded.or_else(|| Some(peer?.address.ip()))
    }

    fn is_trusted(&self, peer: Option<&Peer>) -> bool {
        let address = peer.map(|peer| peer.address.ip().to_canonical());
        self.trusts_everybody
            || address.is_some_and(|ip| self.trusted.iter().any(|network| network.contains(&ip)))
    }
}

/// The address that the nearest proxy has seen.
fn forwarded_address(headers: &HeaderMap) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for");
    let last = lines.iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}

fn is_forwarding(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-forwarded-") || FORWARDING.contains(name)
}

fn underscore_response() -> Response<Body> {
    let detail = "a header name has an underscore, which many services read as a hyphen; send it \
        with a hyphen, or leave it out; nothing was sent to the service";
    problem_response(Code::HeaderNameAmbiguous, detail, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(settings: impl FnOnce(&mut Config)) -> TrustPolicy {
        let mut config = Config::default();
        settings(&mut config);
        TrustPolicy::new(&config)
    }

    /// The remaining headers of a request from this address.
    fn remaining(
        policy: &TrustPolicy,
        address: &str,
        names: &[&'static str],
    ) -> Option<Vec<String>> {
        let mut request = Request::new(());
        for name in names {
            let value = http::HeaderValue::from_static("x");
            request.headers_mut().append(*name, value);
        }
        request.extensions_mut().insert(Peer {
            address: format!("{address}:1").parse().unwrap(),
            is_tls: false,
            has_certificate: false,
            certificate_name: None,
            certificate: None,
        });
        policy.sanitize(&mut request).ok()?;
        let mut names: Vec<String> = request.headers().keys().map(ToString::to_string).collect();
        names.sort();
        Some(names)
    }

    const HEADERS: [&str; 5] = [
        "forwarded",
        "x-forwarded-port",
        "x-real-ip",
        "x-tenant",
        "x-other",
    ];

    #[test]
    fn only_trusted_peers_set_forwarding_and_identity_headers() {
        let front = policy(|config| {
            config.listener.address = "0.0.0.0:8080".to_owned();
            config.listener.trusted_peers = vec!["10.0.0.0/8".to_owned(), "::1".to_owned()];
            config.listener.trust_forwarded = true;
            config.tenants.from = IdentitySource::Header;
            config.tenants.header = Some("x-tenant".to_owned());
        });
        for trusted in ["10.1.2.3", "[::1]", "[::ffff:10.1.2.3]"] {
            assert_eq!(
                remaining(&front, trusted, &HEADERS).unwrap().len(),
                5,
                "{trusted}"
            );
        }
        for other in ["192.0.2.1", "127.0.0.1", "[::ffff:192.0.2.1]"] {
            assert_eq!(
                remaining(&front, other, &HEADERS).unwrap(),
                ["x-other"],
                "{other}"
            );
        }
    }

    #[test]
    fn loopback_peers_may_set_identity_headers() {
        let own = |config: &mut Config| {
            config.tenants.from = IdentitySource::Header;
            config.tenants.header = Some("x-tenant".to_owned());
        };
        let local = policy(own);
        assert_eq!(
            remaining(&local, "127.0.0.1", &HEADERS).unwrap(),
            ["x-other", "x-tenant"]
        );
        let open = policy(|config| {
            own(config);
            config.listener.address = "0.0.0.0:8080".to_owned();
        });
        assert_eq!(
            remaining(&open, "127.0.0.1", &HEADERS).unwrap(),
            ["x-other"]
        );
    }

    #[test]
    fn header_names_with_underscores_are_refused() {
        assert!(remaining(&policy(|_| {}), "127.0.0.1", &["semel_fence"]).is_none());
        let lax = policy(|config| config.listener.allow_underscores = true);
        assert!(remaining(&lax, "127.0.0.1", &["user_id"]).is_some());
    }
}
