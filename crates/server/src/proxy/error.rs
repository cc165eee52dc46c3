//! What can go wrong between here and the service, and what is known about the effect then.

use std::error::Error as _;

use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, Response, StatusCode};
use semel::http::Body;

use crate::paced::TooSlow;

/// Why the service gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It could not be connected to. Nothing was sent.
    Unreachable,
    /// The lease was lost before anything was sent.
    LeaseLost,
    /// The request can't be forwarded at all, such as `CONNECT`.
    Unforwardable,
    /// It did not answer in time.
    Timeout,
    /// As many requests are with the service as may be, and none of them ended in time.
    Full,
    /// The same of this caller's requests.
    Share,
    /// The connection broke before the answer.
    Broken,
    /// The client's own body broke off, paused too long, or was too large.
    Client(ClientFault),
}

/// What a client did wrong while its body was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// It sent more than is taken.
    TooLarge,
    /// It paused too long.
    TooSlow,
    /// It went away.
    Gone,
}

/// What a retry would mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing was sent: as safe as the first time.
    Safe,
    /// The same key makes it safe: it is run again, with the same downstream key and a higher fence.
    RunsAgain,
    /// The key is in doubt: it won't be run again until somebody has looked.
    InDoubt,
    /// There is no key, or none that counts: it may happen twice.
    Unsafe,
}

/// A request that got no answer from the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.detail())]
pub struct ProxyError {
    /// Why.
    pub cause: Cause,
    /// What asking again would mean.
    pub retry: Retry,
}

impl ProxyError {
    /// The stable word for it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self.cause {
            Cause::Unreachable => "upstream_unreachable",
            Cause::Full => "upstream_full",
            Cause::Share => "too_many_requests",
            Cause::LeaseLost => "idempotency_lease_lost",
            Cause::Unforwardable => "request_not_forwardable",
            Cause::Timeout => "upstream_timeout",
            Cause::Broken => "upstream_broken",
            Cause::Client(ClientFault::TooLarge) => "request_too_large",
            Cause::Client(ClientFault::TooSlow) => "request_slow",
            Cause::Client(ClientFault::Gone) => "request_broken",
        }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self.cause {
            Cause::Unreachable | Cause::Broken => StatusCode::BAD_GATEWAY,
            Cause::LeaseLost | Cause::Full => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Share => StatusCode::TOO_MANY_REQUESTS,
            Cause::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Cause::Client(ClientFault::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Cause::Client(ClientFault::TooSlow) => StatusCode::REQUEST_TIMEOUT,
            Cause::Client(ClientFault::Gone) | Cause::Unforwardable => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) const fn title(&self) -> &'static str {
        match self.cause {
            Cause::Unreachable => "The service can't be reached",
            Cause::Full => "The service has as many requests as it may have",
            Cause::Share => "You have as many requests under way as you may",
            Cause::LeaseLost => "Another took the request over",
            Cause::Unforwardable => "The request can't be forwarded",
            Cause::Timeout => "The service did not answer in time",
            Cause::Broken => "The service's answer was lost",
            Cause::Client(ClientFault::TooLarge) => "The request's body is too large",
            Cause::Client(ClientFault::TooSlow) => "The request's body took too long",
            Cause::Client(ClientFault::Gone) => "The request's body broke off",
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
                "a request of this method or form is not forwarded; nothing was sent to the service"
            }
            (Cause::Client(ClientFault::TooLarge), _) => "the body has more bytes than are taken",
            (_, Retry::Safe) => "nothing was sent to the service, so asking again is safe",
            (_, Retry::RunsAgain) => {
                "the request was sent to the service, and whether it took effect is not known; asked again with the same key, it is \
                 sent again"
            }
            (_, Retry::InDoubt) => {
                "the request was sent to the service, and whether it took effect is not known; its key is in doubt until somebody \
                 resolves it, and asking again won't run it"
            }
            (_, Retry::Unsafe) => {
                "the request was sent to the service, and whether it took effect is not known; nothing protects it (it has no \
                 Idempotency-Key, or keys are only observed here, or the store was away), so asking again may do it twice"
            }
        }
    }

    /// The problem document (RFC 9457); or the status of a gRPC call.
    #[must_use]
    pub fn response(&self, is_grpc: bool) -> Response<Body> {
        let mut response = if is_grpc {
            self.grpc()
        } else {
            problem(
                self.status(),
                self.code(),
                self.title(),
                self.detail(),
                self.is_retryable(),
            )
        };
        if matches!(self.cause, Cause::Client(_) | Cause::Unforwardable) && !is_grpc {
            // What is left of the body must not be taken for the next request.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    fn grpc(&self) -> Response<Body> {
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
        headers.insert("grpc-message", HeaderValue::from_static(self.title()));
        headers.insert("idempotency-code", HeaderValue::from_static(self.code()));
        response
    }
}

/// Seconds after which asking again is worth it.
const SOON: u64 = 1;

/// A problem document of the process's own.
pub(crate) fn problem(
    status: StatusCode,
    code: &str,
    title: &str,
    detail: &str,
    retryable: bool,
) -> Response<Body> {
    let mut document = serde_json::json!({
        "type": format!("urn:semel:problem:{code}"),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
        "code": code,
        "retryable": retryable,
    });
    if retryable {
        document["retryAfterMs"] = (SOON * 1000).into();
    }
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if retryable {
        headers.insert(header::RETRY_AFTER, SOON.into());
    }
    response
}

/// Whether a request is a gRPC call.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE);
    media.is_some_and(|media| media.as_bytes().starts_with(b"application/grpc"))
}

/// Looks for what a client did wrong among the causes of an error.
pub(super) fn client_fault(error: &(dyn std::error::Error + 'static)) -> Option<ClientFault> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return Some(ClientFault::TooLarge);
        }
        if error.is::<tower_http::timeout::TimeoutError>() || error.is::<TooSlow>() {
            return Some(ClientFault::TooSlow);
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_user()
            && error.source().is_some()
        {
            // The body that we passed on ended in an error: it is the client's.
            cause = error.source();
            if cause.is_some_and(|cause| {
                !cause.is::<http_body_util::LengthLimitError>()
                    && !cause.is::<tower_http::timeout::TimeoutError>()
                    && !cause.is::<TooSlow>()
            }) {
                return Some(ClientFault::Gone);
            }
            continue;
        }
        cause = error.source();
    }
    None
}

/// What a service may say itself about the outcome, besides its status.
pub const SEMEL_OUTCOME: HeaderName = HeaderName::from_static("semel-outcome");
