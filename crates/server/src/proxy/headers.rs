//! Headers of forwarded requests: hop-by-hop headers, forwarding headers, and Semel's own.

use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use semel::http::HandlerLease;

use crate::web::{BodyLength, Peer, SizedBody, remove_unless};

/// The fence of the request's lease. A service that remembers the highest fence can refuse a lower
/// one.
pub const SEMEL_FENCE: HeaderName = HeaderName::from_static("semel-fence");

/// The attempt number: 1, or more if an earlier run of the same request crashed.
pub const SEMEL_ATTEMPT: HeaderName = HeaderName::from_static("semel-attempt");

/// An idempotency key for downstream systems: the same on every attempt of the request.
pub const SEMEL_DOWNSTREAM_KEY: HeaderName = HeaderName::from_static("semel-downstream-key");

/// Whether only Semel may set a header. Many services read `_` as `-`.
pub(super) fn is_reserved(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    name.starts_with(b"semel") && matches!(name.get(5), Some(b'-' | b'_'))
}

/// Hop-by-hop headers (RFC 9110, 7.6.1), besides those that `Connection` lists.
static HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Removes hop-by-hop headers.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The protocol that a client wants to upgrade to, if it is WebSocket.
pub(super) fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let connection = headers.get_all(header::CONNECTION).iter();
    let mut words = connection
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','));
    let wants = words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    let wanted = headers.get(header::UPGRADE).filter(|_| wants)?;
    let is_known = wanted.as_bytes().eq_ignore_ascii_case(b"websocket");
    is_known.then(|| wanted.clone())
}

/// The changes to a request's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rewrite {
    pub(super) trust_forwarded: bool,
    pub(super) keep_host: bool,
}

impl Rewrite {
    pub(super) fn apply(self, parts: &mut Parts, upgrade: Option<&HeaderValue>) {
        let host = requested_host(parts);
        let headers = &mut parts.headers;
        let wants_trailers = headers
            .get_all(header::TE)
            .iter()
            .any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
        remove_hop_by_hop(headers);
        if wants_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if let Some(protocol) = upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
        }
        // The listener answers `Expect` itself, when the body is read.
        headers.remove(header::EXPECT);
        remove_unless(headers, |name| !is_reserved(name));
        join_cookies(headers);
        headers.remove(header::HOST);
        if let (true, Some(host)) = (self.keep_host, &host) {
            headers.insert(header::HOST, host.clone());
        }
        let peer = parts.extensions.get::<Peer>();
        self.set_forwarding_headers(headers, peer, host);
        append_via(headers, parts.version);
    }

    fn set_forwarding_headers(
        self,
        headers: &mut HeaderMap,
        peer: Option<&Peer>,
        host: Option<HeaderValue>,
    ) {
        let mut set = |name: HeaderName, value: Option<HeaderValue>| {
            if self.trust_forwarded && headers.contains_key(&name) {
                return;
            }
            match value {
                Some(value) => drop(headers.insert(name, value)),
                None => drop(headers.remove(name)),
            }
        };
        set(FORWARDED_HOST, host);
        let Some(peer) = peer else { return };
        let scheme = if peer.is_tls { "https" } else { "http" };
        set(FORWARDED_PROTO, Some(HeaderValue::from_static(scheme)));
        let mut list = peer.address.ip().to_string();
        if self.trust_forwarded {
            let before = headers.get_all(&FORWARDED_FOR).iter();
            let before: Vec<&str> = before.filter_map(|value| value.to_str().ok()).collect();
            if !before.is_empty() {
                list = format!("{}, {list}", before.join(", "));
            }
        }
        if let Ok(list) = HeaderValue::from_str(&list) {
            headers.insert(FORWARDED_FOR, list);
        }
    }
}

/// Joins the cookie fields of HTTP/2 into one, as HTTP/1.1 requires (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Sets `Transfer-Encoding: chunked` on a `GET` or `HEAD` with a body of unknown length. Without
/// it, hyper sends no body.
pub(super) fn force_chunked_for_get_body(parts: &mut Parts, body: &impl Body) {
    let is_get = matches!(parts.method, Method::GET | Method::HEAD);
    if is_get && !body.is_end_stream() && body.size_hint().exact().is_none() {
        let chunked = HeaderValue::from_static("chunked");
        parts.headers.insert(header::TRANSFER_ENCODING, chunked);
    }
}

/// Removes the trailers that only Semel may set. Trailers follow a body of known length in HTTP/2
/// only.
pub(super) fn remove_semel_trailers(body: semel::http::Body, is_http2: bool) -> semel::http::Body {
    if body.is_end_stream() || (body.size_hint().exact().is_some() && !is_http2) {
        return body;
    }
    let length = BodyLength::from_body(&body);
    let filtered = body.map_frame(|frame| match frame.into_trailers() {
        Ok(mut trailers) => {
            remove_unless(&mut trailers, |name| !is_reserved(name));
            Frame::trailers(trailers)
        }
        Err(data) => data,
    });
    semel::http::Body::new(SizedBody::new(filtered, length))
}

/// The requested host: of the URI in HTTP/2 and in the absolute form, otherwise of the header.
fn requested_host(parts: &Parts) -> Option<HeaderValue> {
    let named = parts.uri.authority().map(Authority::as_str);
    // Without user name and password.
    let named = named.map(|text| text.rsplit_once('@').map_or(text, |(_, host)| host));
    let named = named.and_then(|text| HeaderValue::from_str(text).ok());
    named.or_else(|| parts.headers.get(header::HOST).cloned())
}

pub(super) fn append_via(headers: &mut HeaderMap, version: http::Version) {
    let via = match version {
        http::Version::HTTP_2 => "2 semel",
        http::Version::HTTP_10 => "1.0 semel",
        _ => "1.1 semel",
    };
    headers.append(header::VIA, HeaderValue::from_static(via));
}

/// Adds the headers with the lease of a request.
pub(super) fn set_lease_headers(headers: &mut HeaderMap, lease: &HandlerLease) {
    // An unprotected request has no fence.
    if let Some(fence) = lease.fence() {
        headers.insert(SEMEL_FENCE, fence.0.into());
    }
    headers.insert(SEMEL_ATTEMPT, lease.attempt().into());
    if let Ok(key) = HeaderValue::from_str(&lease.derive_key("upstream")) {
        headers.insert(SEMEL_DOWNSTREAM_KEY, key);
    }
}
