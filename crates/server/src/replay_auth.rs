//! [`ReplayAuthorizer`]: asks another service whether a caller may still receive a stored response.
//!
//! A replay never reaches the service itself, so a credential that was revoked in the meantime
//! would still get its replays. With `replay_auth_url`, the sidecar sends a `GET` with the headers
//! of the request there first (as nginx does with `auth_request`), and replays only after a 2xx.

#![expect(clippy::disallowed_methods, reason = "a limit of real sockets")]

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use semel::core::{BoxFuture, Code};
use semel::http::{AuthorizeReplay, Body};

use crate::proxy::UpstreamClient;
use crate::web::problem_response;

/// How long the other service may take.
const TIMEOUT: Duration = Duration::from_secs(5);

const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// Headers of the request that describe its body or its connection.
const DROPPED: [HeaderName; 11] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];

/// Asks a service before a stored response is sent again.
pub(crate) struct ReplayAuthorizer {
    url: Uri,
    client: UpstreamClient,
}

impl ReplayAuthorizer {
    pub(crate) fn new(url: Uri, client: UpstreamClient) -> Self {
        Self { url, client }
    }

    async fn ask(&self, head: &Parts) -> Result<(), Response<Body>> {
        let mut request = Request::new(Body::from(String::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = forwarded_headers(head);
        let answered = tokio::time::timeout(TIMEOUT, self.client.request(request)).await;
        let Ok(Ok(response)) = answered else {
            return Err(unavailable("the authorization service did not answer"));
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED => {
                let detail = "your credential no longer gives access to this response";
                let mut refused = problem_response(Code::Unauthorized, detail, false);
                let challenges = response.headers().get_all(header::WWW_AUTHENTICATE);
                for challenge in challenges {
                    let headers = refused.headers_mut();
                    headers.append(header::WWW_AUTHENTICATE, challenge.clone());
                }
                Err(refused)
            }
            StatusCode::FORBIDDEN => {
                let detail = "you may no longer receive this response";
                Err(problem_response(Code::Forbidden, detail, false))
            }
            _ => Err(unavailable("the authorization service failed")),
        }
    }
}

impl AuthorizeReplay for ReplayAuthorizer {
    fn authorize<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<(), Response<Body>>> {
        Box::pin(self.ask(head))
    }
}

fn unavailable(detail: &str) -> Response<Body> {
    tracing::warn!("{detail}; a replay was refused");
    problem_response(Code::ReplayAuthUnavailable, detail, true)
}

fn forwarded_headers(head: &Parts) -> HeaderMap {
    let mut headers = head.headers.clone();
    for name in DROPPED {
        headers.remove(name);
    }
    if let Ok(method) = HeaderValue::from_str(head.method.as_str()) {
        headers.insert(X_ORIGINAL_METHOD, method);
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    if let Ok(path) = HeaderValue::from_str(path) {
        headers.insert(X_ORIGINAL_URI, path);
    }
    headers
}

/// The authorizer of a route, if its settings name a URL.
pub(crate) fn build(
    url: Option<&str>,
    client: &UpstreamClient,
) -> Option<Arc<dyn AuthorizeReplay>> {
    let url = url?.parse().ok()?;
    Some(Arc::new(ReplayAuthorizer::new(url, client.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_has_the_credentials_and_nothing_of_the_body() {
        let request = Request::post("/charges?x=1")
            .header("authorization", "Bearer t")
            .header("cookie", "s=1")
            .header("content-length", "3")
            .header("content-type", "application/json")
            .body(());
        let headers = forwarded_headers(&request.unwrap().into_parts().0);
        assert_eq!(headers["authorization"], "Bearer t");
        assert_eq!(headers["cookie"], "s=1");
        assert_eq!(headers["x-original-method"], "POST");
        assert_eq!(headers["x-original-uri"], "/charges?x=1");
        assert!(!headers.contains_key("content-length") && !headers.contains_key("content-type"));
    }
}
