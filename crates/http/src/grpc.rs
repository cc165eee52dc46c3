//! gRPC: the same layer, with the status in trailers and problems as gRPC statuses.
//!
//! A call is unary if its request is one message. A key on any other call is refused, because part
//! of a stream can't be compared or replayed. Calls without a key pass untouched, including
//! streams.

use std::fmt::Write as _;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, Version};
use semel_core::Entropy;

use crate::body::Body;
use crate::problem::{PUSHBACK, ProblemDetails, with_jitter};
use crate::profile::Meaning;

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Plain HTTP.
    Http,
    /// gRPC.
    Grpc,
    /// gRPC-Web, with the status inside the body. Put its translator outside of the layer.
    Web,
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const CODE: HeaderName = HeaderName::from_static("idempotency-code");

/// The protocol of a request. gRPC needs HTTP/2, so that a media type alone changes nothing.
pub(crate) fn kind(parts: &Parts) -> Kind {
    let media = parts.headers.get(header::CONTENT_TYPE);
    let may_be_grpc = parts.version >= Version::HTTP_2;
    match media.map(HeaderValue::as_bytes) {
        Some(media) if media.starts_with(b"application/grpc-web") => Kind::Web,
        Some(media) if media.starts_with(b"application/grpc") && may_be_grpc => Kind::Grpc,
        _ => Kind::Http,
    }
}

/// Whether a header or trailer of a call is stored in addition to the route's list.
pub(crate) fn keeps(name: &HeaderName) -> bool {
    [GRPC_STATUS, GRPC_MESSAGE, GRPC_DETAILS, GRPC_ENCODING].contains(name)
}

/// Whether a body is exactly one length-prefixed message.
pub(crate) fn is_one_message(body: &[u8]) -> bool {
    let Some((&[_, a, b, c, d], message)) = body.split_first_chunk() else {
        return false;
    };
    u32::from_be_bytes([a, b, c, d]) as usize == message.len()
}

/// What a status says about the effect; `None` if there is no status yet.
pub(crate) fn meaning(headers: &HeaderMap) -> Option<Meaning> {
    let status = headers.get(GRPC_STATUS)?.to_str().ok()?;
    Some(match status {
        "0" => Meaning::Done,
        // Invalid argument, not found, already exists, permission denied, failed precondition, out
        // of range: a permanent failure.
        "3" | "5" | "6" | "7" | "9" | "11" => Meaning::Failed,
        // Resource exhausted, aborted, unimplemented, unauthenticated: refused before anything
        // happened.
        "8" | "10" | "12" | "16" => Meaning::NothingHappened,
        _ => Meaning::Unclear,
    })
}

/// Whether the status is "permission denied".
pub(crate) fn is_permission_denied(headers: &HeaderMap) -> bool {
    headers.get(GRPC_STATUS).is_some_and(|status| status == "7")
}

/// The gRPC status of a problem without its own.
const UNKNOWN: u8 = 2;

/// A problem as a trailers-only response.
pub(crate) fn problem(details: &ProblemDetails, entropy: &dyn Entropy) -> Response<Body> {
    let mut response = Response::new(Body::default());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    let status = details.code.grpc().unwrap_or(UNKNOWN);
    headers.insert(GRPC_STATUS, u16::from(status).into());
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&details.detail)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    headers.insert(CODE, HeaderValue::from_static(details.code.as_str()));
    let pause = details
        .retry_after
        .map(|pause| with_jitter(pause, entropy).as_millis());
    let pushback = match pause {
        Some(millis) if details.code.is_retryable() => {
            u64::try_from(millis).unwrap_or(u64::MAX).into()
        }
        _ => HeaderValue::from_static("-1"),
    };
    headers.insert(PUSHBACK, pushback);
    response
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_told_from_none_and_two() {
        assert!(is_one_message(&[0, 0, 0, 0, 2, 7, 7]));
        assert!(is_one_message(&[0, 0, 0, 0, 0]));
        assert!(!is_one_message(&[]));
        assert!(!is_one_message(&[0, 0, 0, 0, 2, 7]));
        assert!(!is_one_message(&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 1, 7]));
    }

    #[test]
    fn messages_are_plain_ascii() {
        assert_eq!(percent_encoded("50 % – ok"), "50 %25 %E2%80%93 ok");
    }
}
