//! Responses for paths and methods that an API does not have.

use axum::Router;
use axum::response::IntoResponse as _;
use semel_core::Code;

use super::failure::Failure;

/// Adds a problem document for unknown paths.
pub(crate) fn with_fallbacks(router: Router) -> Router {
    router.fallback(|| async {
        Failure::new(Code::NotFound, "there is nothing at this path").into_response()
    })
}

/// Answers a method that the path does not have.
pub(crate) async fn method_not_allowed() -> axum::response::Response {
    Failure::new(
        Code::MethodNotAllowed,
        "see the Allow header for the methods of this path",
    )
    .into_response()
}
