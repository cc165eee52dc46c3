//! [`BuildError`]: why a layer could not be built.

use semel_core::NamespaceError;
use semel_core::claim::ClaimTermsError;

/// Why a layer could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A route has tenants, but no function to find them.
    #[error(
        "route {route} is multi-tenant but has no function that finds the tenant, so tenants \
         would share keys; add `.tenant(|parts| …)`"
    )]
    NoTenant {
        /// The route's path, or `*` for the defaults.
        route: String,
    },
    /// A JSON pointer of [`Route::redact`](crate::Route::redact) selects nothing.
    #[error("route {route}: the JSON pointer {pointer:?} doesn't begin with a slash")]
    Pointer {
        /// The path of the route, or `*`.
        route: String,
        /// The pointer.
        pointer: String,
    },
    /// A header that must not be stored.
    #[error(
        "route {route} can't store the header {header}: it belongs to one connection or session"
    )]
    Header {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// The name of the header.
        header: String,
    },
    /// The route's path is invalid.
    #[error(
        "the path {0} is invalid; it must begin with / and may have segments such as {{id}} or, \
         last, {{*rest}}"
    )]
    Path(String),
    /// The scope or environment is invalid.
    #[error("the scope of route {route} is invalid: {source}")]
    Scope {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// The reason.
        source: NamespaceError,
    },
    /// The scope names a part of the path that the route doesn't have.
    #[error(
        "the scope {scope:?} of route {route} can't be filled: it must begin with a text of its \
         own, of at most 64 bytes, and each {{name}} in it must be a segment of the path"
    )]
    ScopeParameter {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// The scope.
        scope: String,
    },
    /// The policy is out of bounds.
    #[error("the policy of route {route} is invalid: {source}")]
    Policy {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// The reason.
        source: ClaimTermsError,
    },
}
