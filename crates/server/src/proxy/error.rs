//! Errors of forwarding: why the service did not answer, and whether a retry is safe.

use std::error::Error as _;

use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, Response, Version};
use semel::core::Code;
use semel::http::Body;

use crate::body_pace::BodyTooSlow;
use crate::web::problem_response;

/// Why the service did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection to the service. Nothing was sent.
    Unreachable,
    /// The lease was lost before anything was sent.
    LeaseLost,
    /// The request cannot be forwarded, such as `CONNECT`.
    Unforwardable,
    /// The service did not answer in time.
    Timeout,
    /// The limit of concurrent requests at the service is reached, and no request ended in time.
    Full,
    /// The caller's share of this limit is reached.
    Share,
    /// The connection broke before the response.
    Broken,
    /// The body of the client broke off, was too slow or too large.
    Client(ClientFault),
}

/// A client's fault while its body was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// The body exceeds the limit.
    TooLarge,
    /// The body arrived too slowly.
    TooSlow,
    /// The client disconnected.
    Gone,
}

/// What a retry means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing was sent, so a retry is safe.
    Safe,
    /// A retry with the same key runs again, with the same downstream key and a higher fence.
    RunsAgain,
    /// The key is in doubt: it does not run again until an operator resolves it.
    InDoubt,
    /// The request has no effective key, so a retry may run the effect twice.
    Unsafe,
}

/// The service did not answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.detail())]
pub struct ProxyError {
    /// The reason.
    pub cause: Cause,
    /// What a retry means.
    pub retry: Retry,
}

impl ProxyError {
    /// The stable error code.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self.cause {
            Cause::Unreachable => Code::UpstreamUnreachable,
            Cause::Full => Code::UpstreamFull,
            Cause::Share => Code::TooManyRequests,
            Cause::LeaseLost => Code::LeaseLost,
            Cause::Unforwardable => Code::RequestNotForwardable,
            Cause::Timeout => Code::UpstreamTimeout,
            Cause::Broken => Code::UpstreamBroken,
            Cause::Client(ClientFault::TooLarge) => Code::RequestTooLarge,
            Cause::Client(ClientFault::TooSlow) => Code::RequestSlow,
            Cause::Client(ClientFault::Gone) => Code::RequestBroken,
        }
    }

    pub(crate) const fn is_retryable(&self) -> bool {
        match self.cause {
            Cause::Unforwardable | Cause::Client(ClientFault::TooLarge) => false,
            _ => matches!(self.retry, Retry::Safe | Retry::RunsAgain),
        }
    }

    const fn detail(&self) -> &'static str {
        match (self.cause, self.retry) {
            (Cause::Unforwardable, _) => {
                "requests of this method or form are not forwarded; nothing was sent to the service"
            }
            (Cause::Client(ClientFault::TooLarge), _) => "the body exceeds the size limit",
            (_, Retry::Safe) => "nothing was sent to the service, so a retry is safe",
            (_, Retry::RunsAgain) => {
                "the request was sent to the service, and its outcome is unknown; a retry with the \
                 same key sends it again"
            }
            (_, Retry::InDoubt) => {
                "the request was sent to the service, and its outcome is unknown; the key is in \
                 doubt until an operator resolves it, and a retry will not run it"
            }
            (_, Retry::Unsafe) => {
                "the request was sent to the service, and its outcome is unknown; it was not \
                 protected (no Idempotency-Key, observe mode, or the store was down), so a retry may \
                 run it twice"
            }
        }
    }

    /// The problem document (RFC 9457), or the status of a gRPC call.
    #[must_use]
    pub fn response(&self, is_grpc: bool) -> Response<Body> {
        let mut response = if is_grpc {
            self.grpc_response()
        } else {
            problem_response(self.code(), self.detail(), self.is_retryable())
        };
        if matches!(self.cause, Cause::Client(_) | Cause::Unforwardable) && !is_grpc {
            // The rest of the body must not be read as the next request.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    fn grpc_response(&self) -> Response<Body> {
        let status = match (self.cause, self.retry) {
            (Cause::Timeout, _) => "4",
            (_, Retry::Safe | Retry::RunsAgain) => "14",
            _ => "2",
        };
        let mut response = Response::new(Body::default());
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        headers.insert("grpc-status", HeaderValue::from_static(status));
        headers.insert(
            "grpc-message",
            HeaderValue::from_static(self.code().title()),
        );
        headers.insert(
            "idempotency-code",
            HeaderValue::from_static(self.code().as_str()),
        );
        response
    }
}

/// Whether a request is a gRPC call. gRPC needs HTTP/2, so that a media type alone changes nothing.
pub(crate) fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    if version < Version::HTTP_2 {
        return false;
    }
    let media = headers.get(header::CONTENT_TYPE);
    let rest = media.and_then(|media| media.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Searches the causes of an error for a client's fault.
pub(super) fn find_client_fault(error: &(dyn std::error::Error + 'static)) -> Option<ClientFault> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return Some(ClientFault::TooLarge);
        }
        if error.is::<tower_http::timeout::TimeoutError>() || error.is::<BodyTooSlow>() {
            return Some(ClientFault::TooSlow);
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_user()
            && error.source().is_some()
        {
            // The forwarded body ended with an error, which is the client's.
            cause = error.source();
            if cause.is_some_and(|cause| {
                !cause.is::<http_body_util::LengthLimitError>()
                    && !cause.is::<tower_http::timeout::TimeoutError>()
                    && !cause.is::<BodyTooSlow>()
            }) {
                return Some(ClientFault::Gone);
            }
            continue;
        }
        cause = error.source();
    }
    None
}

/// The response header by which the service reports the outcome: `no-effect` or `unknown`.
pub const SEMEL_OUTCOME: HeaderName = HeaderName::from_static("semel-outcome");
