//! Everything that can go wrong for a caller: one table, rendered as RFC 9457 problem details.

use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use semel_core::engine::Problem;
use semel_core::event::BusyReason;
use semel_core::{CanonicalError, Entropy, KeyError, NamespaceError};

use crate::body::Body;
use crate::profile::{ErrorShape, Terms};

/// One row of the table of problems.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The stable word for it.
    pub code: &'static str,
    /// The status, where no profile says otherwise.
    pub status: u16,
    /// The status of a gRPC call.
    pub grpc: u8,
    /// Whether the same request may get an answer later.
    pub retryable: bool,
    /// What it is, in a few words.
    pub title: &'static str,
}

const fn row(
    code: &'static str,
    status: u16,
    grpc: u8,
    retryable: bool,
    title: &'static str,
) -> Row {
    Row {
        code,
        status,
        grpc,
        retryable,
        title,
    }
}

/// Every problem that a caller can meet.
pub const PROBLEMS: &[Row] = &[
    row(
        "idempotency_key_required",
        400,
        3,
        false,
        "This operation needs an Idempotency-Key",
    ),
    row(
        "idempotency_key_invalid",
        400,
        3,
        false,
        "The Idempotency-Key can't be used",
    ),
    row(
        "idempotency_payload_invalid",
        400,
        3,
        false,
        "The payload can't be compared",
    ),
    row(
        "idempotency_tenant_required",
        400,
        3,
        false,
        "The request names no tenant",
    ),
    row(
        "idempotency_ttl_invalid",
        400,
        3,
        false,
        "The X-Idempotency-TTL can't be used",
    ),
    row(
        "idempotency_body_broken",
        400,
        13,
        true,
        "The request's body broke off",
    ),
    row(
        "idempotency_body_slow",
        408,
        4,
        true,
        "The request's body took too long",
    ),
    row(
        "idempotency_body_too_large",
        413,
        8,
        false,
        "The request's body is too large to be compared",
    ),
    row(
        "idempotency_unary_only",
        400,
        12,
        false,
        "Keys work on unary calls",
    ),
    row(
        "webhook_unverified",
        401,
        16,
        false,
        "The webhook's signature is not valid",
    ),
    row(
        "idempotency_conflict",
        422,
        9,
        false,
        "The key was used with another payload",
    ),
    row(
        "idempotency_in_flight",
        409,
        10,
        true,
        "A request with this key is still running",
    ),
    row(
        "idempotency_too_many_waiters",
        429,
        8,
        true,
        "Too many requests with this key are waiting",
    ),
    row(
        "idempotency_in_doubt",
        409,
        9,
        false,
        "Whether an earlier request took effect is not known",
    ),
    row(
        "idempotency_store_unavailable",
        503,
        14,
        true,
        "The request was not started",
    ),
    row(
        "idempotency_late",
        503,
        14,
        true,
        "The request was not started in time",
    ),
    row(
        "idempotency_lease_lost",
        503,
        14,
        true,
        "Another took the request over",
    ),
    row(
        "idempotency_unrecorded",
        503,
        14,
        true,
        "The outcome could not be recorded",
    ),
    row(
        "idempotency_effect_panicked",
        500,
        13,
        true,
        "The request failed unexpectedly",
    ),
    row(
        "idempotency_answer_broken",
        502,
        13,
        true,
        "The answer broke off",
    ),
    row(
        "idempotency_shut_down",
        503,
        14,
        true,
        "The server is shutting down",
    ),
    row(
        "idempotency_policy",
        500,
        13,
        false,
        "The route's policy can't be used",
    ),
    row(
        "idempotency_answer_unreadable",
        500,
        13,
        false,
        "The stored answer can't be read",
    ),
    row(
        "idempotency_body_not_kept",
        200,
        15,
        false,
        "Done before; the answer's body was not kept",
    ),
];

/// The row of `code`; the table's tests hold that there is one.
pub(crate) fn row_of(code: &str) -> Row {
    let found = PROBLEMS.iter().find(|row| row.code == code);
    found.copied().unwrap_or(row(
        "idempotency_policy",
        500,
        13,
        false,
        "The request could not be treated",
    ))
}

/// Why a request was refused before any store was asked. Never repeats what was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no key, and the route requires one.
    #[error(
        "send an Idempotency-Key header: a value of your own, the same for every retry, such as a UUID"
    )]
    KeyRequired,
    /// There is more than one.
    #[error("the key is given more than once; send exactly one")]
    KeyTwice,
    /// It is neither bare nor a quoted string.
    #[error("the key is neither a quoted string nor a plain value; send for example \"k-1\"")]
    KeySyntax,
    /// It breaks the rules.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The body has no canonical form.
    #[error("{0}; or let the route compare bodies by their bytes")]
    Payload(#[from] CanonicalError),
    /// The route has tenants, and the request names none.
    #[error("the request names no tenant, and this route needs one")]
    TenantRequired,
    /// Tenant, principal or scope can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The wished-for retention is no number of milliseconds.
    #[error("X-Idempotency-TTL is a number of milliseconds from 1 up")]
    Ttl,
    /// The body broke off.
    #[error("the request's body broke off; nothing was started")]
    BodyBroken,
    /// The body took too long.
    #[error("the request's body did not arrive in time; nothing was started")]
    BodySlow,
    /// The body has more bytes than are taken.
    #[error("a request with a key may have a body of at most {most} bytes; nothing was started")]
    BodyTooLarge {
        /// The most bytes taken.
        most: usize,
    },
    /// A gRPC request of more than one message.
    #[error("a key works on unary calls: one message, unencoded by grpc-web; call without a key")]
    UnaryOnly,
    /// The webhook's verifier said no.
    #[error("the webhook's signature is not valid")]
    Unverified,
}

impl Refusal {
    /// The word for it in the table of problems.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::KeyRequired => "idempotency_key_required",
            Self::KeyTwice | Self::KeySyntax | Self::Key(_) => "idempotency_key_invalid",
            Self::Payload(_) => "idempotency_payload_invalid",
            Self::TenantRequired | Self::Namespace(_) => "idempotency_tenant_required",
            Self::Ttl => "idempotency_ttl_invalid",
            Self::BodyBroken => "idempotency_body_broken",
            Self::BodySlow => "idempotency_body_slow",
            Self::BodyTooLarge { .. } => "idempotency_body_too_large",
            Self::UnaryOnly => "idempotency_unary_only",
            Self::Unverified => "webhook_unverified",
        }
    }
}

/// A problem, ready to be written.
pub(crate) struct Told {
    pub(crate) row: Row,
    pub(crate) status: u16,
    pub(crate) detail: String,
    pub(crate) retry_after: Option<Duration>,
}

impl Told {
    pub(crate) fn of_code(code: &'static str, detail: impl Into<String>) -> Self {
        let row = row_of(code);
        Self {
            row,
            status: row.status,
            detail: detail.into(),
            retry_after: row.retryable.then_some(SOON),
        }
    }

    pub(crate) fn of_refusal(refusal: &Refusal) -> Self {
        Self::of_code(refusal.code(), refusal.to_string())
    }

    /// What the engine said, in the words and numbers of the route's profile.
    pub(crate) fn of_engine(problem: &Problem, terms: &Terms) -> Self {
        let code = match problem {
            Problem::Busy {
                why: BusyReason::KeyWaiters | BusyReason::ProcessWaiters,
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
    match shape {
        ErrorShape::Problem => {}
        ErrorShape::Flat => document["message"] = told.detail.clone().into(),
        ErrorShape::Nested => {
            let kind = if row.code == "idempotency_conflict" {
                "conflict"
            } else {
                "idempotency_error"
            };
            document["error"] = serde_json::json!({
                "type": kind,
                "code": row.code,
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
        let link = format!("<{page}>; rel=\"help\"");
        if let Ok(link) = HeaderValue::from_str(&link) {
            headers.insert(header::LINK, link);
        }
    }
    response
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
