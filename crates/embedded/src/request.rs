//! A request to the protocol API, and its reply.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Request};
use tower::ServiceExt as _;

/// The longest time of a call.
const MOST_SECONDS: f64 = 1e6;

/// A request to the API.
pub struct ApiRequest(Request<Body>);

/// A method or a path that no request has.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ApiRequestError(http::Error);

impl ApiRequest {
    /// The request to `path`, which is relative to the API.
    ///
    /// # Errors
    ///
    /// The method or the path is not one of HTTP.
    pub fn new(method: &str, path: &str, body: Option<Bytes>) -> Result<Self, ApiRequestError> {
        let has_body = body.is_some();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/{path}"))
            .body(body.map_or_else(Body::empty, Body::from))
            .map_err(ApiRequestError)?;
        if has_body {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(CONTENT_TYPE, json);
        }
        Ok(Self(request))
    }
}

/// A reply of the API.
pub struct ApiReply {
    /// The status of HTTP.
    pub status: u16,
    headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl ApiReply {
    /// The headers, of which the API writes only text.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()))
    }
}

/// What became of a call.
pub enum CallOutcome {
    /// The API has replied.
    Replied(ApiReply),
    /// The time of the call is up. What it asked for may have happened.
    TimedOut,
    /// The store was closed meanwhile. What the call asked for may have happened.
    Closed,
}

/// Asks the API.
pub(crate) async fn ask(router: Router, request: ApiRequest) -> ApiReply {
    let response: Response = match router.oneshot(request.0).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    // The API has the whole body in memory, so reading it cannot fail.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    ApiReply {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
    }
}

/// The time of a call: at least nothing, at most some days, whatever the caller says.
#[must_use]
pub fn call_limit(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(MOST_SECONDS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_bounded_whatever_is_asked_for() {
        let most = Duration::from_secs(1_000_000);
        assert_eq!(call_limit(1.5), Duration::from_millis(1500));
        assert_eq!(call_limit(-1.0), Duration::ZERO);
        assert_eq!(call_limit(f64::INFINITY), most);
        assert_eq!(call_limit(f64::NAN), most);
    }

    #[test]
    fn a_request_without_a_method_of_http_is_refused() {
        assert!(ApiRequest::new("GET", "v1/claims/x?wait_ms=1", None).is_ok());
        assert!(ApiRequest::new("no method", "v1/claims", None).is_err());
        assert!(ApiRequest::new("GET", "v1/cla ims", None).is_err());
    }
}
