//! Everything that can go wrong for a caller: one table, rendered as RFC 9457 problem details.

mod help;
mod refusal;
mod table;

use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use semel_core::Entropy;
use semel_core::engine::Problem;
use semel_core::event::BusyReason;

use crate::body::Body;
use crate::profile::{ErrorShape, Profile, Terms};

pub use help::{HELP, Help};
pub use refusal::Refusal;
pub(crate) use table::row_of;
pub use table::{PROBLEMS, Row};

impl Refusal {
    /// The problem document that the layer answers with: for a handler that refuses in the same words.
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
        render(&Told::of_refusal(self), shape, None, entropy)
    }
}

/// A problem, ready to be written: for every door that answers over HTTP.
#[derive(Clone, Debug)]
pub struct Told {
    /// Which one it is.
    pub row: Row,
    /// The status to answer with.
    pub status: u16,
    /// What to tell the caller; nothing of what was sent, nothing of what a store said.
    pub detail: String,
    /// When asking again is worth it.
    pub retry_after: Option<Duration>,
    /// Further members of the document.
    pub members: serde_json::Map<String, serde_json::Value>,
}

impl Told {
    /// A problem of the table, with its own status.
    pub fn of_code(code: &'static str, detail: impl Into<String>) -> Self {
        let row = row_of(code);
        Self {
            row,
            status: row.status,
            detail: detail.into(),
            retry_after: row.retryable.then_some(SOON),
            members: serde_json::Map::new(),
        }
    }

    /// Why a request is refused at a door.
    #[must_use]
    pub fn of_refusal(refusal: &Refusal) -> Self {
        Self::of_code(refusal.code(), refusal.to_string())
    }

    /// What the engine said, in the words and numbers of the route's profile.
    #[must_use]
    pub fn of_engine(problem: &Problem, terms: &Terms) -> Self {
        let code = match problem {
            Problem::Busy {
                why: BusyReason::KeyWaiters | BusyReason::ProcessWaiters | BusyReason::TenantWaiters,
                ..
            } => "idempotency_too_many_waiters",
            _ => problem.code(),
        };
        let mut told = Self::of_code(code, detail(problem));
        match problem {
            Problem::Mismatch => told.status = terms.mismatch,
            Problem::Busy { why, .. } => {
                let waited = *why == BusyReason::WaitedTooLong;
                let counted = code == "idempotency_too_many_waiters";
                told.status = match (counted, waited) {
                    (true, _) => told.status,
                    (_, true) => terms.waited_too_long,
                    _ => terms.in_flight,
                };
                // Not the lease's end, which the engine names: most effects end long before.
                told.retry_after = Some(if waited { AFTER_WAITING } else { SOON });
            }
            _ => told.retry_after = problem.retry_after().or(told.retry_after),
        }
        told
    }
}

impl Told {
    /// The problem document, as the layer writes it.
    #[must_use]
    pub fn response(&self, entropy: &dyn Entropy) -> Response<Body> {
        render(self, ErrorShape::Problem, None, entropy)
    }
}

/// When to ask again where nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// When to ask again after having waited in vain (document F).
const AFTER_WAITING: Duration = Duration::from_secs(5);

/// For the caller: nothing of what a store said.
fn detail(problem: &Problem) -> String {
    match problem {
        Problem::Busy { .. } => {
            "another request with this key is still running; ask again with the same key".to_owned()
        }
        other => other.to_string(),
    }
}

/// Up to a quarter more, so that callers who were refused together don't come back together.
pub(crate) fn with_jitter(pause: Duration, entropy: &dyn Entropy) -> Duration {
    let part = u32::try_from(entropy.next_u128() & 0xff).unwrap_or(0);
    pause + pause * part / 1024
}

/// A problem document (RFC 9457).
pub(crate) fn render(
    told: &Told,
    shape: ErrorShape,
    documentation: Option<&str>,
    entropy: &dyn Entropy,
) -> Response<Body> {
    let row = told.row;
    let pause = told.retry_after.map(|pause| with_jitter(pause, entropy));
    let millis = pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
    let mut document = serde_json::json!({
        "type": documentation.map_or_else(|| format!("urn:semel:problem:{}", row.code), |page| format!("{page}#{}", row.code)),
        "title": row.title,
        "status": told.status,
        "detail": told.detail,
        "code": row.code,
        "retryable": row.retryable,
    });
    if let Some(millis) = millis {
        document["retryAfterMs"] = millis.into();
    }
    for (name, value) in &told.members {
        document[name] = value.clone();
    }
    match shape {
        ErrorShape::Problem => {}
        ErrorShape::Flat => {
            document["type"] = flat_type(told.status).into();
            document["message"] = told.detail.clone().into();
        }
        ErrorShape::Nested | ErrorShape::Stripe => {
            let (kind, code) = nested_type(shape, row.code);
            document["error"] = serde_json::json!({
                "type": kind,
                "code": code,
                "message": told.detail,
                "retryable": row.retryable,
            });
            if let Some(millis) = millis {
                document["error"]["retryAfterMs"] = millis.into();
            }
        }
    }
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(told.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
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

/// Which of its three types the Agentic Commerce Protocol gives an error.
const fn flat_type(status: u16) -> &'static str {
    match status {
        503 => "service_unavailable",
        500.. => "processing_error",
        _ => "invalid_request",
    }
}

/// Type and code inside an `error` object.
fn nested_type(shape: ErrorShape, code: &'static str) -> (&'static str, &'static str) {
    match (shape, code) {
        (ErrorShape::Stripe, "idempotency_in_flight") => {
            ("idempotency_error", "idempotency_key_in_use")
        }
        (ErrorShape::Nested, "idempotency_conflict") => ("conflict", code),
        _ => ("idempotency_error", code),
    }
}

fn put_retry_after(headers: &mut HeaderMap, pause: Option<Duration>) {
    if let Some(pause) = pause {
        // Whole seconds is all that the header can say; never "at once".
        headers.insert(header::RETRY_AFTER, pause.as_secs().max(1).into());
    }
}

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What gRPC clients with a retry policy look at: when to try again, or a negative number for never.
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_every_refusal_has_a_row() {
        for (i, row) in PROBLEMS.iter().enumerate() {
            assert!(PROBLEMS[..i].iter().all(|other| other.code != row.code));
            assert!(StatusCode::from_u16(row.status).is_ok());
        }
        for refusal in [
            Refusal::KeyRequired,
            Refusal::KeyTwice,
            Refusal::TenantRequired,
            Refusal::Ttl,
            Refusal::BodyBroken,
            Refusal::BodySlow,
            Refusal::BodyTooLarge { most: 1 },
            Refusal::UnaryOnly,
            Refusal::Unverified,
        ] {
            assert_eq!(row_of(refusal.code()).code, refusal.code());
        }
        for problem in [
            Problem::Mismatch,
            Problem::Late,
            Problem::Panicked,
            Problem::ShutDown,
        ] {
            let row = row_of(problem.code());
            assert_eq!(
                (row.code, row.retryable),
                (problem.code(), problem.is_retryable())
            );
        }
    }
}
