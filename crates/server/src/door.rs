//! What of a request's head is believed: of whom, and what is refused or taken out before anything looks at it.

use http::header::{HeaderMap, HeaderName};
use http::{Request, Response, StatusCode};
use ipnet::IpNet;
use semel::http::Body;

use crate::config::{Config, From, Protocol};
use crate::listener::Peer;
use crate::proxy::problem;

/// How requests say where they come from, besides `X-Forwarded-*`: whoever is in front says so, and nobody else.
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

/// Whose word is taken for what.
pub(crate) struct Door {
    /// Nobody else's word is taken. Empty: that of everybody who reaches a listener on loopback.
    trusted: Vec<IpNet>,
    trusts_all: bool,
    trust_forwarded: bool,
    /// The headers that say whose request it is.
    whose: Vec<HeaderName>,
    takes_underscores: bool,
}

impl Door {
    pub(crate) fn new(config: &Config) -> Self {
        let listener = &config.listener;
        let named = [&config.tenants, &config.principals].into_iter();
        let named = named.filter(|whose| whose.from == From::Header);
        let named = named.filter_map(|whose| whose.header.as_deref()?.parse().ok());
        Self {
            trusted: listener.peers(),
            trusts_all: listener.trusted_peers.is_empty() && listener.is_on_loopback(),
            trust_forwarded: listener.trust_forwarded,
            whose: named.collect(),
            // Names of gRPC's metadata may have them, and no service that speaks it takes them for something else.
            takes_underscores: listener.allow_underscores
                || config.upstream.protocol == Protocol::H2c,
        }
    }

    /// Takes out what isn't believed.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal is the answer itself, made once"
    )]
    pub(crate) fn pass<B>(&self, request: &mut Request<B>) -> Result<(), Response<Body>> {
        let has_underscore = |name: &HeaderName| name.as_str().contains('_');
        if !self.takes_underscores && request.headers().keys().any(has_underscore) {
            return Err(underscore());
        }
        let is_trusted = self.is_trusted(request.extensions().get());
        if is_trusted && self.trust_forwarded {
            return Ok(());
        }
        let keeps = |name: &HeaderName| match self.whose.contains(name) {
            true => is_trusted,
            false => !is_forwarding(name),
        };
        remove_unless(request.headers_mut(), keeps);
        Ok(())
    }

    fn is_trusted(&self, peer: Option<&Peer>) -> bool {
        let address = peer.map(|peer| peer.address.ip().to_canonical());
        self.trusts_all
            || address.is_some_and(|ip| self.trusted.iter().any(|network| network.contains(&ip)))
    }
}

fn is_forwarding(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-forwarded-") || FORWARDING.contains(name)
}

/// Takes out the headers that aren't kept.
pub(crate) fn remove_unless(headers: &mut HeaderMap, keeps: impl Fn(&HeaderName) -> bool) {
    let gone: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !keeps(name))
        .cloned()
        .collect();
    for name in gone {
        headers.remove(name);
    }
}

fn underscore() -> Response<Body> {
    let title = "A header's name has an underscore";
    let detail = "many services take a_b for a-b; send the header with a hyphen, or without; nothing was sent to the service";
    let status = StatusCode::BAD_REQUEST;
    problem(status, "header_name_ambiguous", title, detail, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(settings: impl FnOnce(&mut Config)) -> Door {
        let mut config = Config::default();
        settings(&mut config);
        Door::new(&config)
    }

    /// What is left of a request from this address.
    fn left(door: &Door, address: &str, names: &[&'static str]) -> Option<Vec<String>> {
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
        door.pass(&mut request).ok()?;
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
    fn only_named_peers_say_where_requests_come_from_and_whose_they_are() {
        let front = door(|config| {
            config.listener.address = "0.0.0.0:8080".to_owned();
            config.listener.trusted_peers = vec!["10.0.0.0/8".to_owned(), "::1".to_owned()];
            config.listener.trust_forwarded = true;
            config.tenants.from = From::Header;
            config.tenants.header = Some("x-tenant".to_owned());
        });
        for trusted in ["10.1.2.3", "[::1]", "[::ffff:10.1.2.3]"] {
            assert_eq!(
                left(&front, trusted, &HEADERS).unwrap().len(),
                5,
                "{trusted}"
            );
        }
        for other in ["192.0.2.1", "127.0.0.1", "[::ffff:192.0.2.1]"] {
            assert_eq!(
                left(&front, other, &HEADERS).unwrap(),
                ["x-other"],
                "{other}"
            );
        }
    }

    #[test]
    fn on_loopback_everybody_who_gets_there_may_say_whose_a_request_is() {
        let own = |config: &mut Config| {
            config.tenants.from = From::Header;
            config.tenants.header = Some("x-tenant".to_owned());
        };
        let local = door(own);
        assert_eq!(
            left(&local, "127.0.0.1", &HEADERS).unwrap(),
            ["x-other", "x-tenant"]
        );
        let open = door(|config| {
            own(config);
            config.listener.address = "0.0.0.0:8080".to_owned();
        });
        assert_eq!(left(&open, "127.0.0.1", &HEADERS).unwrap(), ["x-other"]);
    }

    #[test]
    fn names_with_underscores_are_refused() {
        assert!(left(&door(|_| {}), "127.0.0.1", &["semel_fence"]).is_none());
        let lax = door(|config| config.listener.allow_underscores = true);
        assert!(left(&lax, "127.0.0.1", &["user_id"]).is_some());
    }
}
