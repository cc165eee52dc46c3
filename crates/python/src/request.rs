//! A request to the protocol API, and its reply.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Request};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tower::ServiceExt as _;

/// A reply of the API, as Python gets it: status, headers, body.
pub(crate) type PyReply<'py> = (u16, Bound<'py, PyDict>, Bound<'py, PyBytes>);

/// A reply of the API.
pub(crate) struct ApiReply {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

/// What became of a call.
pub(crate) enum CallOutcome {
    /// The API has replied.
    Replied(ApiReply),
    /// The time of the call is up. What it asked for may have happened.
    TimedOut,
    /// The store was closed meanwhile. What the call asked for may have happened.
    Closed,
}

impl ApiReply {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<PyReply<'_>> {
        let headers = PyDict::new(py);
        for (name, value) in &self.headers {
            headers.set_item(name.as_str(), value.to_str().unwrap_or_default())?;
        }
        Ok((self.status, headers, PyBytes::new(py, &self.body)))
    }
}

/// The request to `path`, which is relative to the API.
pub(crate) fn build_request(
    method: &str,
    path: &str,
    body: Option<&[u8]>,
) -> PyResult<Request<Body>> {
    let request = Request::builder().method(method).uri(format!("/{path}"));
    let bytes = body.map(Bytes::copy_from_slice);
    let mut request = request
        .body(bytes.map_or_else(Body::empty, Body::from))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    if body.is_some() {
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
    }
    Ok(request)
}

/// Asks the API.
pub(crate) async fn ask(router: Router, request: Request<Body>) -> ApiReply {
    let response: Response = match router.oneshot(request).await {
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
