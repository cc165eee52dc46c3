//! Renders problems as RFC 9457 problem details.

mod refusal;

use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use semel_core::engine::Problem;
use semel_core::event::BusyReason;
use semel_core::{Code, Entropy};

use crate::body::Body;
use crate::profile::{ErrorShape, Profile, ProfileTerms};

pub use refusal::Refusal;

impl Refusal {
    /// The problem document that the layer answers with: for a handler that refuses in the same
    /// words.
    ///
    /// ```
    /// use semel_core::env::SystemEntropy;
    /// use semel_http::{Profile, Refusal};
    ///
    /// let response = Refusal::KeyRequired.response(Profile::Ietf, &SystemEntropy);
    /// assert_eq!(response.status(), 400);
    /// ```
    #[must_use]
    pub fn response(&self, profile: Profile, entropy: &dyn Entropy) -> Response<Body> {
        let shape = profile.terms().errors;
        render(&ProblemDetails::from_refusal(self), shape, None, entropy)
    }
}

/// The details of a problem (RFC 9457).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProblemDetails {
    /// The code of the problem.
    pub code: Code,
    /// The HTTP status of the response.
    pub status: u16,
    /// The text for the caller. It repeats nothing of the request or of a store's error.
    pub detail: String,
    /// When a retry makes sense.
    pub retry_after: Option<Duration>,
    /// Further members of the document.
    pub members: serde_json::Map<String, serde_json::Value>,
}

impl ProblemDetails {
    /// Details with the code's own status.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            retry_after: code.is_retryable().then_some(SOON),
            members: serde_json::Map::new(),
        }
    }

    /// Details of a refused request.
    #[must_use]
    pub fn from_refusal(refusal: &Refusal) -> Self {
        Self::new(refusal.code(), refusal.to_string())
    }

    /// Details of the engine's problem, with the statuses of the route's profile.
    #[must_use]
    pub fn from_problem(problem: &Problem, terms: &ProfileTerms) -> Self {
        let code = match problem {
            Problem::Busy {
                why: BusyReason::KeyWaiters | BusyReason::ProcessWaiters | BusyReason::TenantWaiters,
                ..
            } => Code::TooManyWaiters,
            _ => problem.code(),
        };
        let mut details = Self::new(code, detail(problem));
        match problem {
            Problem::Mismatch => details.status = terms.mismatch,
            Problem::InDoubt(_) => details.status = terms.in_doubt,
            Problem::Busy { why, .. } => {
                let waited = *why == BusyReason::WaitedTooLong;
                let counted = code == Code::TooManyWaiters;
                details.status = match (counted, waited) {
                    (true, _) => details.status,
                    (_, true) => terms.waited_too_long,
                    _ => terms.in_flight,
                };
                // Most effects end long before their lease, so the lease's end would be too late.
                details.retry_after = Some(if waited { AFTER_WAITING } else { SOON });
            }
            Problem::Unavailable { retry_after, .. } => {
                details.retry_after = Some((*retry_after).max(terms.unavailable_pause));
            }
            _ => details.retry_after = problem.retry_after().or(details.retry_after),
        }
        details
    }
}

impl ProblemDetails {
    /// Renders the problem document as the layer does.
    #[must_use]
    pub fn response(&self, entropy: &dyn Entropy) -> Response<Body> {
        render(self, ErrorShape::Problem, None, entropy)
    }
}

/// The default pause before a retry.
const SOON: Duration = Duration::from_secs(1);

/// The pause before a retry of a request that has already waited (document F).
const AFTER_WAITING: Duration = Duration::from_secs(5);

/// The text for the caller, without the store's error.
fn detail(problem: &Problem) -> String {
    match problem {
        Problem::Busy { .. } => {
            "another request with this key is still running; retry with the same key".to_owned()
        }
        other => other.to_string(),
    }
}

/// Adds up to a quarter, so that refused callers don't retry at the same moment (jitter).
pub(crate) fn with_jitter(pause: Duration, entropy: &dyn Entropy) -> Duration {
    let part = u32::try_from(entropy.next_u128() & 0xff).unwrap_or(0);
    pause + pause * part / 1024
}

/// Renders a problem document (RFC 9457).
pub(crate) fn render(
    details: &ProblemDetails,
    shape: ErrorShape,
    documentation: Option<&str>,
    entropy: &dyn Entropy,
) -> Response<Body> {
    let code = details.code;
    let pause = details.retry_after.map(|pause| with_jitter(pause, entropy));
    let millis = pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
    let mut document = serde_json::json!({
        "type": documentation.map_or_else(
            || format!("urn:semel:problem:{code}"),
            |page| format!("{page}#{code}"),
        ),
        "title": code.title(),
        "status": details.status,
        "detail": details.detail,
        "code": code.as_str(),
        "retryable": code.is_retryable(),
    });
    if let Some(millis) = millis {
        document["retryAfterMs"] = millis.into();
    }
    for (name, value) in &details.members {
        document[name] = value.clone();
    }
    match shape {
        ErrorShape::Problem => {}
        ErrorShape::Flat => {
            document["type"] = flat_type(details.status).into();
            document["message"] = details.detail.clone().into();
        }
        ErrorShape::Catalog => {
            document["error"] = serde_json::json!({
                "message": details.detail,
                "type": code.as_str(),
                "code": details.status,
            });
        }
        ErrorShape::Nested | ErrorShape::Stripe => {
            let (kind, word) = nested_type(shape, code, details.status);
            if shape == ErrorShape::Nested {
                document["ok"] = false.into();
            }
            document["error"] = serde_json::json!({
                "type": kind,
                "code": word,
                "message": details.detail,
                "retryable": code.is_retryable(),
            });
            if let Some(millis) = millis {
                document["error"]["retryAfterMs"] = millis.into();
            }
        }
    }
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(details.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    put_retry_after(headers, pause);
    if let Some(page) = documentation {
        let link = format!("<{page}>; rel=\"describedby\"");
        if let Ok(link) = HeaderValue::from_str(&link) {
            headers.insert(header::LINK, link);
        }
    }
    response
}

/// The error type in the Agentic Commerce Protocol.
const fn flat_type(status: u16) -> &'static str {
    match status {
        503 => "service_unavailable",
        500.. => "processing_error",
        _ => "invalid_request",
    }
}

/// The error type inside an `error` object.
const fn nested_type(shape: ErrorShape, code: Code, status: u16) -> (&'static str, &'static str) {
    match (shape, code) {
        (ErrorShape::Stripe, Code::InFlight) => ("idempotency_error", "idempotency_key_in_use"),
        (ErrorShape::Nested, Code::Conflict) => ("conflict", code.as_str()),
        (ErrorShape::Nested, _) if status == 503 => ("service_unavailable", code.as_str()),
        _ => ("idempotency_error", code.as_str()),
    }
}

fn put_retry_after(headers: &mut HeaderMap, pause: Option<Duration>) {
    if let Some(pause) = pause {
        // The header has whole seconds, at least one.
        headers.insert(header::RETRY_AFTER, pause.as_secs().max(1).into());
    }
}

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The delay for gRPC clients with a retry policy; a negative number means never.
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_and_the_code_agree_on_what_may_be_retried() {
        for problem in [
            Problem::Mismatch,
            Problem::Late,
            Problem::Panicked,
            Problem::ShutDown,
        ] {
            assert_eq!(problem.code().is_retryable(), problem.is_retryable());
        }
        for code in Code::ALL {
            assert!(StatusCode::from_u16(code.status()).is_ok(), "{code}");
        }
    }
}
