//! Responses of the stack itself.

use http::Response;
use http::header::{self, HeaderValue};
use semel::core::Code;
use semel::http::{Body, Refusal};

use crate::identity::TokenProblem;
use crate::web::problem_response;

/// The response to a path that is not Semel's own, in a process without a service.
pub(super) fn no_service_response() -> Response<Body> {
    let detail = "this process forwards to no service and serves only Semel's own paths; nothing \
        was started";
    problem_response(Code::NotFound, detail, false)
}

/// Whether the layer refused the request because the tenant or principal is missing.
pub(super) fn is_identity_refusal(response: &Response<Body>) -> bool {
    matches!(
        response.extensions().get::<Refusal>(),
        Some(Refusal::TenantRequired | Refusal::Namespace(_))
    )
}

/// The 401 response that makes clients refresh their token.
pub(super) fn unauthenticated_response(problem: TokenProblem) -> Response<Body> {
    let (detail, challenge) = match problem {
        TokenProblem::Absent => (
            "the request has no bearer token; nothing was started",
            "Bearer",
        ),
        TokenProblem::Expired => (
            "the token has expired; nothing was started",
            "Bearer error=\"invalid_token\", error_description=\"expired\"",
        ),
        TokenProblem::Invalid => (
            "the token is invalid; nothing was started",
            "Bearer error=\"invalid_token\"",
        ),
    };
    let mut response = problem_response(Code::TokenRequired, detail, false);
    let challenge = HeaderValue::from_static(challenge);
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}
