//! What an answer means for the next attempt. No I/O: one place decides.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

/// A problem document is read up to here.
pub(crate) const MAX_PROBLEM_BYTES: usize = 64 * 1024;

/// What the document of a problem says.
#[derive(Debug, Default)]
pub(crate) struct Problem {
    code: Option<String>,
    retryable: Option<bool>,
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// Member by member: a service writes what it likes under these names, and one that says something else takes
    /// nothing from the others.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
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

/// Whether the body is worth reading for what it says of the problem.
pub(crate) fn is_problem(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json")
        || kind.to_ascii_lowercase().ends_with("+json");
    is_json && status.as_u16() >= 400
}

/// What to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is the answer.
    Final,
    /// The key was used with another payload.
    Conflict,
    /// Nobody knows, and asking won't help.
    InDoubt,
    /// Ask again.
    Again {
        /// Not before this.
        after: Option<Duration>,
        /// Whether it counts as an attempt: a server that asks for patience is in good health.
        counts: bool,
        /// Whether this attempt surely did nothing.
        nothing_done: bool,
    },
}

/// Statuses that are asked again where the answer itself doesn't say: with a key, that is safe.
const RETRYABLE: [u16; 7] = [408, 425, 429, 500, 502, 503, 504];

/// Codes that say that this attempt did nothing. Too many waiters is none of them: it is said while another attempt with
/// the key runs.
const NOT_STARTED: [&str; 6] = [
    "idempotency_store_unavailable",
    "idempotency_late",
    "idempotency_body_broken",
    "idempotency_body_slow",
    "upstream_unreachable",
    "audit_unavailable",
];

/// Codes of a server in good health that asks for patience: bounded by time, not by attempts.
const WAITING: [&str; 2] = ["idempotency_in_flight", "idempotency_too_many_waiters"];

/// What the answer says itself counts more than its status.
pub(crate) fn judge(status: StatusCode, headers: &HeaderMap, problem: &Problem) -> Judged {
    let code = problem.code.as_deref().unwrap_or_default();
    match code {
        "idempotency_conflict" => return Judged::Conflict,
        "idempotency_in_doubt" | "idempotency_record_unreadable" => return Judged::InDoubt,
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
        return Judged::Final;
    }
    Judged::Again {
        after,
        counts: !WAITING.contains(&code),
        nothing_done: NOT_STARTED.contains(&code),
    }
}

/// How long the server asks to wait: the finer of what it says.
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

    fn judged(status: u16, headers: &[(header::HeaderName, &str)], body: &str) -> Judged {
        let status = StatusCode::from_u16(status).expect("a status");
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(name, value.parse().expect("a value"));
        }
        judge(status, &all, &Problem::of(status, &all, body.as_bytes()))
    }

    const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/problem+json");

    const fn again(after: Option<Duration>, counts: bool, nothing_done: bool) -> Judged {
        Judged::Again {
            after,
            counts,
            nothing_done,
        }
    }

    #[test]
    fn what_the_service_says_for_good_is_an_answer() {
        for status in [200, 201, 204, 302, 400, 402, 404, 409, 422] {
            assert_eq!(judged(status, &[], ""), Judged::Final, "{status}");
        }
    }

    #[test]
    fn with_a_key_what_went_wrong_is_asked_again() {
        for status in RETRYABLE {
            assert_eq!(
                judged(status, &[], ""),
                again(None, true, false),
                "{status}"
            );
        }
    }

    #[test]
    fn a_conflict_and_a_doubt_are_never_asked_again_whatever_their_status() {
        for status in [400, 409, 422, 500] {
            let of = |code: &str| {
                judged(
                    status,
                    &[JSON],
                    &format!("{{\"code\":\"{code}\",\"retryable\":true}}"),
                )
            };
            assert_eq!(of("idempotency_conflict"), Judged::Conflict);
            assert_eq!(of("idempotency_in_doubt"), Judged::InDoubt);
            assert_eq!(of("idempotency_record_unreadable"), Judged::InDoubt);
        }
    }

    #[test]
    fn a_run_under_way_is_waited_for_and_counts_for_nothing() {
        let body = "{\"code\":\"idempotency_in_flight\",\"retryable\":true,\"retryAfterMs\":250}";
        let told = judged(409, &[JSON, (header::RETRY_AFTER, "1")], body);
        assert_eq!(told, again(Some(Duration::from_millis(250)), false, false));
    }

    #[test]
    fn one_that_may_not_even_wait_for_the_run_under_way_is_not_told_as_not_done() {
        let body = "{\"code\":\"idempotency_too_many_waiters\",\"retryable\":true}";
        assert_eq!(judged(429, &[JSON], body), again(None, false, false));
    }

    #[test]
    fn what_was_not_started_is_known_not_to_be_done() {
        let body = "{\"code\":\"idempotency_store_unavailable\",\"retryable\":true}";
        assert_eq!(judged(503, &[JSON], body), again(None, true, true));
        // Its process ended, and nobody knows how far it was.
        let body = "{\"code\":\"idempotency_shut_down\",\"retryable\":true}";
        assert_eq!(judged(503, &[JSON], body), again(None, true, false));
    }

    #[test]
    fn what_was_answered_before_is_asked_for_again_and_never_told_as_not_done() {
        let body = "{\"code\":\"idempotency_body_unavailable\",\"retryable\":true}";
        assert_eq!(judged(503, &[JSON], body), again(None, true, false));
    }

    #[test]
    fn what_the_problem_says_counts_more_than_its_status() {
        assert_eq!(judged(503, &[JSON], "{\"retryable\":false}"), Judged::Final);
        assert_eq!(
            judged(400, &[JSON], "{\"retryable\":true}"),
            again(None, true, false)
        );
        // Of an answer that isn't a problem, the status counts.
        assert_eq!(judged(200, &[JSON], "{\"retryable\":true}"), Judged::Final);
        assert_eq!(judged(503, &[JSON], "no JSON"), again(None, true, false));
    }

    #[test]
    fn a_member_of_another_kind_takes_nothing_from_the_others() {
        for code in ["7", "[\"idempotency_in_flight\"]", "{\"a\":1}", "null"] {
            for status in [400, 503] {
                let body = format!("{{\"code\":{code},\"retryable\":false}}");
                let told = judged(status, &[JSON], &body);
                assert_eq!(told, Judged::Final, "{status} {code}");
            }
        }
        let conflict =
            "{\"code\":\"idempotency_conflict\",\"retryable\":\"no\",\"retryAfterMs\":-1}";
        assert_eq!(judged(422, &[JSON], conflict), Judged::Conflict);
        let soon = "{\"code\":[],\"retryable\":true,\"retryAfterMs\":\"soon\"}";
        assert_eq!(judged(400, &[JSON], soon), again(None, true, false));
    }

    #[test]
    fn the_time_to_wait_is_a_number_of_seconds_or_a_date() {
        let after = |text| judged(503, &[(header::RETRY_AFTER, text)], "");
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
