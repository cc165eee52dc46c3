//! [`Failure`]: the RFC 9457 problem document of an API's error, and its description for OpenAPI.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use semel_core::Code;
use semel_core::engine::Problem;
use semel_core::env::SystemEntropy;
use semel_http::{ProblemDetails, Profile, Refusal};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// An error of an API, as a problem document (RFC 9457).
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Box<ProblemDetails>);

impl Failure {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemDetails::new(code, detail)))
    }

    /// The request does not match the schema.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::RequestInvalid, detail)
    }

    /// The request is well formed, but a rule forbids it.
    pub(crate) fn refused(detail: impl Into<String>) -> Self {
        Self::new(Code::RequestRefused, detail)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(
            Code::Unauthorized,
            "send a valid token: Authorization: Bearer TOKEN",
        )
    }

    pub(crate) fn not_found() -> Self {
        Self::new(
            Code::NotFound,
            "the record does not exist, or it has expired",
        )
    }

    pub(crate) fn from_problem(problem: &Problem) -> Self {
        Self(Box::new(ProblemDetails::from_problem(
            problem,
            Profile::Ietf.terms(),
        )))
    }

    /// Adds a member to the document.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.0.members.insert(name.to_owned(), value);
        self
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(ProblemDetails::from_refusal(&refusal)))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.0.response(&SystemEntropy).map(axum::body::Body::new);
        if response.status() == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"semel\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A problem document (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemDocument {
    /// `urn:semel:problem:` and the code.
    r#type: String,
    /// A short summary of the problem.
    title: String,
    /// The HTTP status of the response.
    status: u16,
    /// What happened, and what to do.
    detail: String,
    /// The stable error code.
    code: String,
    /// Whether the same request can succeed later.
    retryable: bool,
    /// How long to wait before a retry, in milliseconds.
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// The id of the claim that the problem is about.
    #[schema(nullable = false)]
    claim_id: Option<String>,
}

macro_rules! problems {
    ($($name:ident $status:literal $what:literal)*) => {$(
        #[doc = $what]
        #[derive(IntoResponses)]
        #[response(status = $status, description = $what, content_type = "application/problem+json")]
        #[expect(dead_code, reason = "describes a response for OpenAPI")]
        pub(crate) struct $name(ProblemDocument);
    )*};
}

problems! {
    Problem400 400 "The request can't be read."
    Problem401 401 "The request has no valid credential."
    Problem403 403 "The credential does not allow this."
    Problem404 404 "The record does not exist, or it has expired."
    Problem408 408 "The body did not arrive in time."
    Problem409 409 "The key is running, it is in doubt, the lease is lost, or the record has \
        changed: see `code`."
    Problem413 413 "The body is too large."
    Problem415 415 "The body is not JSON."
    Problem422 422 "The key was used with another payload, or a rule forbids the request."
    Problem429 429 "The caller has reached a limit, too many requests are waiting, or too many sign-ins have failed: see `code`."
    Problem500 500 "The record of this key cannot be read."
    Problem503 503 "The store or the audit trail did not answer."
}
