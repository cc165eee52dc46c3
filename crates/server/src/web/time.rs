//! Times and durations as the APIs write them.

use std::time::Duration;

use semel_core::Timestamp;

/// A duration in whole milliseconds.
pub(crate) fn to_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// RFC 3339 text in UTC, with milliseconds.
pub(crate) fn format_time(at: Timestamp) -> String {
    let whole = semel_http::rfc3339(at);
    let millis = at.as_micros() / 1000 % 1000;
    format!("{}.{millis:03}Z", whole.trim_end_matches('Z'))
}
