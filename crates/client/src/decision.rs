//! Decides what to do after a response: return it, fail, or retry. Pure functions.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use crate::code;

/// The largest problem document that is read.
pub(crate) const MAX_PROBLEM_BYTES: usize = 64 * 1024;

/// The members of a problem document (RFC 9457) that the client uses.
#[derive(Debug, Default)]
pub(crate) struct Problem {
    code: Option<String>,
    retryable: Option<bool>,
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// Parses a problem document member by member, so that a member of another type doesn't
    /// invalidate the others.
    pub(crate) fn parse(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        if !is_problem(status, headers) || body.len() > MAX_PROBLEM_BYTES {
            return Self::default();
        }
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let code = said.get("code").and_then(Value::as_str);
        Self {
            code: code.map(str::to_owned),
            retryable: said.get("retryable").and_then(Value::as_bool),
            retry_after_ms: said.get("retryAfterMs").and_then(Value::as_u64),
        }
    }
}

/// Whether the body may be a problem document.
pub(crate) fn is_problem(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json")
        || kind.to_ascii_lowercase().ends_with("+json");
    is_json && status.as_u16() >= 400
}

/// What to do after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Return the response.
    Final,
    /// Fail: the key was used with another payload.
    Conflict,
    /// Fail: the outcome is unknown, and a retry won't help.
    InDoubt,
    /// Retry.
    Again {
        /// The least pause before the retry.
        after: Option<Duration>,
        /// Whether it counts as an attempt. A wait for a run in progress doesn't: the server is
        /// healthy.
        counts: bool,
        /// Whether this attempt certainly had no effect.
        nothing_done: bool,
    },
}

/// Statuses that are retried if the response itself doesn't say. That is safe with a key.
const RETRYABLE: [u16; 7] = [408, 425, 429, 500, 502, 503, 504];

/// Codes that prove that this attempt had no effect. Too many waiters is not among them: it is
/// given while another attempt with the key runs.
const NOT_STARTED: [&str; 10] = [
    code::AUDIT_UNAVAILABLE,
    code::BODY_BROKEN,
    code::BODY_SLOW,
    code::LATE,
    code::NO_ROOM,
    code::OVERLOADED,
    code::RATE_LIMITED,
    code::STORE_UNAVAILABLE,
    code::TOO_MANY_REQUESTS,
    code::UPSTREAM_UNREACHABLE,
];

/// Codes of a healthy server that asks the client to wait: bounded by time, not by attempts.
const WAITING: [&str; 2] = [code::IN_FLIGHT, code::TOO_MANY_WAITERS];

/// Decides by the problem document first, then by the status.
pub(crate) fn decide(status: StatusCode, headers: &HeaderMap, problem: &Problem) -> Decision {
    let said = problem.code.as_deref().unwrap_or_default();
    match said {
        code::CONFLICT => return Decision::Conflict,
        code::IN_DOUBT | code::RECORD_UNREADABLE => return Decision::InDoubt,
        _ => {}
    }
    let after = retry_after(headers, problem);
    let again = match problem.retryable {
        Some(says) => says && status.as_u16() >= 400,
        // A plain 409 may be a conflict for good; one that names a time is not.
        None => {
            RETRYABLE.contains(&status.as_u16())
                || (status == StatusCode::CONFLICT && after.is_some())
        }
    };
    if !again {
        return Decision::Final;
    }
    Decision::Again {
        after,
        counts: !WAITING.contains(&said),
        nothing_done: NOT_STARTED.contains(&said),
    }
}

/// How long the server asks to wait: in milliseconds from the document, or from `Retry-After`.
fn retry_after(headers: &HeaderMap, problem: &Problem) -> Option<Duration> {
    if let Some(millis) = problem.retry_after_ms {
        return Some(Duration::from_millis(millis));
    }
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if text.len() < 10
        && let Ok(seconds) = text.parse::<u32>()
    {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(status: u16, headers: &[(header::HeaderName, &str)], body: &str) -> Decision {
        let status = StatusCode::from_u16(status).expect("a status");
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(name, value.parse().expect("a value"));
        }
        decide(status, &all, &Problem::parse(status, &all, body.as_bytes()))
    }

    const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/problem+json");

    const fn again(after: Option<Duration>, counts: bool, nothing_done: bool) -> Decision {
        Decision::Again {
            after,
            counts,
            nothing_done,
        }
    }

    #[test]
    fn final_statuses_are_returned() {
        for status in [200, 201, 204, 302, 400, 402, 404, 409, 422] {
            assert_eq!(decided(status, &[], ""), Decision::Final, "{status}");
        }
    }

    #[test]
    fn retryable_statuses_are_retried_with_a_key() {
        for status in RETRYABLE {
            assert_eq!(
                decided(status, &[], ""),
                again(None, true, false),
                "{status}"
            );
        }
    }

    #[test]
    fn conflict_and_doubt_are_never_retried() {
        for status in [400, 409, 422, 500] {
            let of = |code: &str| {
                decided(
                    status,
                    &[JSON],
                    &format!("{{\"code\":\"{code}\",\"retryable\":true}}"),
                )
            };
            assert_eq!(of("idempotency_conflict"), Decision::Conflict);
            assert_eq!(of("idempotency_in_doubt"), Decision::InDoubt);
            assert_eq!(of("idempotency_record_unreadable"), Decision::InDoubt);
        }
    }

    #[test]
    fn waiting_for_a_running_request_does_not_count() {
        let body = "{\"code\":\"idempotency_in_flight\",\"retryable\":true,\"retryAfterMs\":250}";
        let told = decided(409, &[JSON, (header::RETRY_AFTER, "1")], body);
        assert_eq!(told, again(Some(Duration::from_millis(250)), false, false));
    }

    #[test]
    fn too_many_waiters_does_not_prove_nothing_happened() {
        let body = "{\"code\":\"idempotency_too_many_waiters\",\"retryable\":true}";
        assert_eq!(decided(429, &[JSON], body), again(None, false, false));
    }

    #[test]
    fn not_started_codes_prove_nothing_happened() {
        let body = "{\"code\":\"idempotency_store_unavailable\",\"retryable\":true}";
        assert_eq!(decided(503, &[JSON], body), again(None, true, true));
        // Its process shut down at an unknown point.
        let body = "{\"code\":\"idempotency_shut_down\",\"retryable\":true}";
        assert_eq!(decided(503, &[JSON], body), again(None, true, false));
    }

    #[test]
    fn unavailable_body_is_retried_and_may_be_done() {
        let body = "{\"code\":\"idempotency_body_unavailable\",\"retryable\":true}";
        assert_eq!(decided(503, &[JSON], body), again(None, true, false));
    }

    #[test]
    fn problem_document_overrides_the_status() {
        assert_eq!(
            decided(503, &[JSON], "{\"retryable\":false}"),
            Decision::Final
        );
        assert_eq!(
            decided(400, &[JSON], "{\"retryable\":true}"),
            again(None, true, false)
        );
        // Of an answer that isn't a problem, the status counts.
        assert_eq!(
            decided(200, &[JSON], "{\"retryable\":true}"),
            Decision::Final
        );
        assert_eq!(decided(503, &[JSON], "no JSON"), again(None, true, false));
    }

    #[test]
    fn member_of_wrong_type_leaves_the_others_valid() {
        for code in ["7", "[\"idempotency_in_flight\"]", "{\"a\":1}", "null"] {
            for status in [400, 503] {
                let body = format!("{{\"code\":{code},\"retryable\":false}}");
                let told = decided(status, &[JSON], &body);
                assert_eq!(told, Decision::Final, "{status} {code}");
            }
        }
        let conflict =
            "{\"code\":\"idempotency_conflict\",\"retryable\":\"no\",\"retryAfterMs\":-1}";
        assert_eq!(decided(422, &[JSON], conflict), Decision::Conflict);
        let soon = "{\"code\":[],\"retryable\":true,\"retryAfterMs\":\"soon\"}";
        assert_eq!(decided(400, &[JSON], soon), again(None, true, false));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |text| decided(503, &[(header::RETRY_AFTER, text)], "");
        assert_eq!(after("7"), again(Some(Duration::from_secs(7)), true, false));
        assert_eq!(
            after("Sun, 06 Nov 1994 08:49:37 GMT"),
            again(Some(Duration::ZERO), true, false)
        );
        for nonsense in ["-1", "soon", "99999999999"] {
            assert_eq!(after(nonsense), again(None, true, false), "{nonsense}");
        }
    }
}
