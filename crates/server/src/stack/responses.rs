//! Responses of the stack itself, and the address of a request.

use std::net::IpAddr;

use http::header::{self, HeaderValue};
use http::{Request, Response};
use semel::core::Code;
use semel::http::{Body, Refusal};

use crate::identity::TokenProblem;
use crate::web::{Peer, problem_response};

/// The client address of a request. `X-Forwarded-For` of untrusted peers is already removed.
pub(super) fn client_address<B>(request: &Request<B>) -> Option<IpAddr> {
    let lines = request.headers().get_all("x-forwarded-for");
    let last = lines.iter().next_back().and_then(|line| line.to_str().ok());
    let last = last.and_then(|line| line.rsplit(',').next());
    let forwarded = last.and_then(|address| address.trim().parse().ok());
    forwarded.or_else(|| {
        request
            .extensions()
            .get::<Peer>()
            .map(|peer| peer.address.ip())
    })
}

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
