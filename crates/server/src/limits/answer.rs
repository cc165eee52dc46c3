//! What a caller is told who meets a limit.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use semel::http::Body;

use super::{By, Limit, Met};
use crate::proxy::problem;

/// The answer to a request that isn't let in.
pub(crate) fn refused(met: Met) -> Response<Body> {
    let (status, code, title, detail) = match (met.limit, met.by) {
        (Limit::Rate, _) => (
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Too many requests a second",
            "you send more requests a second than you may; nothing was started",
        ),
        (_, By::Process) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "As many requests are under way as may be",
            "this process has as many requests as it takes at a time; nothing was started",
        ),
        _ => (
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_requests",
            "You have as many requests under way as you may",
            "wait until some of your requests have ended; nothing was started",
        ),
    };
    let mut response = problem(status, code, title, detail, true);
    let seconds = met.retry_after.as_secs_f64().ceil().max(1.0);
    if let Ok(value) = HeaderValue::from_str(&format!("{seconds:.0}")) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}
