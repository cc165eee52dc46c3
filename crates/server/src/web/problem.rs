//! Problem documents (RFC 9457) of the limits, the listener and the proxy.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use semel_core::Code;
use semel_http::Body;

/// The `Retry-After` of retryable problems, in seconds.
const RETRY_AFTER_SECONDS: u64 = 1;

/// Writes a problem document.
pub(crate) fn problem_response(code: Code, detail: &str, retryable: bool) -> Response<Body> {
    let mut document = serde_json::json!({
        "type": format!("urn:semel:problem:{code}"),
        "title": code.title(),
        "status": code.status(),
        "detail": detail,
        "code": code.as_str(),
        "retryable": retryable,
    });
    if retryable {
        document["retryAfterMs"] = (RETRY_AFTER_SECONDS * 1000).into();
    }
    let mut response = Response::new(Body::from(document.to_string()));
    if let Ok(status) = StatusCode::from_u16(code.status()) {
        *response.status_mut() = status;
    }
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if retryable {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    }
    response
}
