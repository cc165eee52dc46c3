//! The headers of *Repeatable Requests Version 1.0* (OASIS, Committee Specification 01, July 2020).

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use semel_core::{Code, Timestamp};

use crate::problem::Refusal;

/// The key of a repeatable request: a UUID.
pub const REPEATABILITY_REQUEST_ID: HeaderName =
    HeaderName::from_static("repeatability-request-id");

/// When the first attempt of a repeatable request was sent, such as
/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const REPEATABILITY_FIRST_SENT: HeaderName =
    HeaderName::from_static("repeatability-first-sent");

/// Whether a repeatable request was accepted as one: `accepted` or `rejected`.
pub const REPEATABILITY_RESULT: HeaderName = HeaderName::from_static("repeatability-result");

/// When the first attempt was sent: one IMF-fixdate (RFC 9110, section 5.6.7).
pub(crate) fn first_sent(headers: &HeaderMap) -> Result<Timestamp, Refusal> {
    let mut lines = headers.get_all(REPEATABILITY_FIRST_SENT).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Refusal::FirstSent);
    };
    let text = line.to_str().map_err(|_| Refusal::FirstSent)?.trim();
    let at = httpdate::parse_http_date(text).map_err(|_| Refusal::FirstSent)?;
    // The parser takes the two obsolete forms of a date too.
    if httpdate::fmt_http_date(at) != text {
        return Err(Refusal::FirstSent);
    }
    let since = at.duration_since(std::time::UNIX_EPOCH);
    let micros = since
        .ok()
        .and_then(|since| since.as_micros().try_into().ok());
    micros.map(Timestamp::from_micros).ok_or(Refusal::FirstSent)
}

/// Says whether a request was accepted as a repeatable one.
pub(crate) fn put_result(headers: &mut HeaderMap, accepted: bool) {
    let value = match accepted {
        true => HeaderValue::from_static("accepted"),
        false => HeaderValue::from_static("rejected"),
    };
    headers.insert(REPEATABILITY_RESULT, value);
}

/// Whether a problem concerns a request that was accepted as a repeatable one, by this attempt or
/// by an earlier one with the same payload.
pub(crate) const fn is_accepted(code: Code) -> bool {
    matches!(
        code,
        Code::InFlight
            | Code::TooManyWaiters
            | Code::InDoubt
            | Code::AnswerErased
            | Code::AnswerExpired
            | Code::BodyUnavailable
            | Code::LeaseLost
            | Code::Unrecorded
            | Code::EffectPanicked
            | Code::AnswerUnreadable
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<Timestamp, Refusal> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(REPEATABILITY_FIRST_SENT, line.parse().unwrap());
        }
        first_sent(&headers)
    }

    #[test]
    fn first_sent_is_one_imf_fixdate() {
        let at = read(&["Sun, 06 Nov 1994 08:49:37 GMT"]).unwrap();
        assert_eq!(at.as_micros(), 784_111_777_000_000);
        for lines in [
            &[][..],
            &[""],
            &["soon"],
            &["784111777"],
            &["1994-11-06T08:49:37Z"],
            &["Sunday, 06-Nov-94 08:49:37 GMT"],
            &["Sun Nov  6 08:49:37 1994"],
            &[
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "Sun, 06 Nov 1994 08:49:37 GMT",
            ],
        ] {
            assert_eq!(read(lines), Err(Refusal::FirstSent), "{lines:?}");
        }
    }
}
