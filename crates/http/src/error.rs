//! [`BuildError`]: why a layer could not be built.

use semel_core::NamespaceError;
use semel_core::claim::TermsError;

/// Why a layer could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A route has tenants, and nobody says which.
    #[error(
        "route {route} has tenants, but nothing that finds them; add `.tenant(|parts| …)`, or keys of \
         two tenants would meet"
    )]
    NoTenant {
        /// The route's path, or `*` for the defaults.
        route: String,
    },
    /// A header that must not be kept.
    #[error(
        "route {route} may not keep the header {header}: it belongs to one connection or session"
    )]
    Header {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// Which header.
        header: String,
    },
    /// The route's path can't be used.
    #[error(
        "the path {0} can't be used; it begins with / and has segments such as {{id}} or, last, {{*rest}}"
    )]
    Path(String),
    /// The scope or environment can't be used.
    #[error("the scope of route {route} can't be used: {source}")]
    Scope {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// Why.
        source: NamespaceError,
    },
    /// The policy is out of bounds.
    #[error("the policy of route {route} can't be used: {source}")]
    Policy {
        /// The route's path, or `*` for the defaults.
        route: String,
        /// Why.
        source: TermsError,
    },
}
