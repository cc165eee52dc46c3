//! Why a [`Semel`](crate::Semel) could not be opened.

use semel_core::canary::CanaryError;

/// Why a [`Semel`](crate::Semel) could not be opened.
///
/// Shown by `{:?}` as by `{}`: a `main` that returns it prints a sentence.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let error = semel::Semel::open("oracle://db").await.unwrap_err();
/// assert!(format!("{error:?}").starts_with("no store of this build has the scheme oracle://; this build has memory://"));
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text isn't a URL.
    #[error("the store is given by a URL, for example memory://")]
    NotAUrl,
    /// There are more than two URLs.
    #[error("at most two stores keep the same records: one URL, or two with a space between them")]
    ManyStores,
    /// No store of this build has that scheme.
    #[error(
        "no store of this build has the scheme {scheme}://; this build has {}",
        schemes()
    )]
    Scheme {
        /// The scheme given.
        scheme: String,
    },
    /// An option of the URL is wrong.
    #[error("the store's URL has {0}, which can't be used; memory:// takes ?capacity=NUMBER")]
    Option(&'static str),
    /// The store can't be reached, or isn't fit to keep records.
    #[error("the store can't be used: {}", reason(.0))]
    Store(#[source] semel_core::StoreError),
    /// The bucket for large bodies can't be reached, or rejects them.
    #[error("the body store can't be used: {}", reason(.0))]
    Bodies(#[source] semel_core::StoreError),
    /// The default policy is out of bounds.
    #[error("the policy can't be used: {0}")]
    Policy(#[from] semel_core::ClaimTermsError),
    /// The environment can't be used.
    #[error("the environment can't be used: {0}")]
    Environment(#[from] semel_core::NamespaceError),
    /// The store is used with another secret, or didn't answer.
    #[error(transparent)]
    Canary(#[from] CanaryError),
    /// The store is used with other encryption keys, or didn't answer.
    #[error(transparent)]
    Encryption(#[from] semel_stores::encrypted::canary::KeyCanaryError),
}

/// The error with its cause, because "refused" alone doesn't help at start-up.
fn reason(error: &semel_core::StoreError) -> String {
    use std::error::Error as _;
    error
        .source()
        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

impl std::fmt::Debug for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The schemes that this build's stores have.
fn schemes() -> String {
    let mut schemes = "memory://".to_owned();
    let all = [
        ("mysql", "mysql", cfg!(feature = "mysql")),
        ("postgres", "postgres", cfg!(feature = "postgres")),
        ("redis", "redis", cfg!(feature = "redis")),
        ("s3", "object", cfg!(feature = "object")),
        ("sqlite", "sqlite", cfg!(feature = "sqlite")),
    ];
    for (name, feature, is_here) in all {
        let more = if is_here {
            format!(", {name}://")
        } else {
            format!(" (feature `{feature}` adds {name}://)")
        };
        schemes.push_str(&more);
    }
    schemes
}
