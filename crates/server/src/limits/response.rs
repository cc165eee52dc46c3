//! The response to a request that exceeds a limit.

use http::Response;
use http::header::{self, HeaderValue};
use semel::core::Code;
use semel::http::Body;

use super::{ExceededLimit, Limit, LimitScope};
use crate::web::{Failure, problem_response};

/// The code and the detail of an exceeded limit.
const fn describe(exceeded: ExceededLimit) -> (Code, &'static str) {
    match (exceeded.limit, exceeded.by) {
        (Limit::Rate, _) => (
            Code::RateLimited,
            "you exceed your request rate; nothing was started",
        ),
        (_, LimitScope::Process) => (
            Code::Overloaded,
            "this process has reached its limit of concurrent requests; nothing was started",
        ),
        _ => (
            Code::TooManyRequests,
            "you have reached your share of concurrent requests; wait until some of them end; \
             nothing was started",
        ),
    }
}

/// The error of an API for a request that exceeds a limit.
pub(super) fn limit_failure(exceeded: ExceededLimit) -> Failure {
    let (code, detail) = describe(exceeded);
    let mut failure = Failure::new(code, detail);
    failure.0.retry_after = Some(exceeded.retry_after);
    failure
}

/// The problem document for a request that exceeds a limit.
pub(crate) fn limit_response(exceeded: ExceededLimit) -> Response<Body> {
    let (code, detail) = describe(exceeded);
    let mut response = problem_response(code, detail, true);
    let seconds = exceeded.retry_after.as_secs_f64().ceil().max(1.0);
    if let Ok(value) = HeaderValue::from_str(&format!("{seconds:.0}")) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}
