//! [`Lease`]: what a handler holds while it runs.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use semel_core::engine;

/// The lease of the request that a handler runs for: the fence, a key to pass on, a place for
/// progress, and a way to say what became of the effect.
///
/// In the request's extensions; with feature `axum` also an extractor. `Option<Lease>` takes requests
/// without a key as well.
///
/// ```
/// use semel_http::Lease;
///
/// async fn charge(lease: Lease) -> &'static str {
///     let _for_the_provider = lease.derive_key("psp");
///     let _refuses_older = lease.fence();
///     "charged"
/// }
/// # let _ = charge;
/// ```
#[derive(Clone, Debug)]
pub struct Lease {
    lease: engine::Lease,
    mark: Arc<AtomicU8>,
}

/// What a handler knows better than its answer's status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing happened: the key is freed, whatever the status.
    NoEffect = 1,
    /// Nobody knows: sent, and no reply came. The key is in doubt until resolved.
    Unknown = 2,
}

impl Lease {
    pub(crate) fn new(lease: engine::Lease) -> Self {
        Self {
            lease,
            mark: Arc::default(),
        }
    }

    /// Says what became of the effect, where the status of the answer doesn't. The last word counts.
    ///
    /// Say [`Outcome::NoEffect`] only where it is certain: the next request with the key runs again.
    pub fn mark(&self, outcome: Outcome) {
        self.mark.store(outcome as u8, Ordering::SeqCst);
    }

    pub(crate) fn marked(&self) -> Option<Outcome> {
        match self.mark.load(Ordering::SeqCst) {
            1 => Some(Outcome::NoEffect),
            2 => Some(Outcome::Unknown),
            _ => None,
        }
    }
}

impl Deref for Lease {
    type Target = engine::Lease;

    fn deref(&self) -> &engine::Lease {
        &self.lease
    }
}

#[cfg(feature = "axum")]
mod extract {
    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum::response::{IntoResponse, Response};
    use http::request::Parts;

    use super::Lease;
    use crate::problem::{Refusal, Told, render};
    use crate::profile::ErrorShape;
    use crate::service::Unkeyed;

    /// Why there is no lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum NoLease {
        /// The request has no key. Answers 400.
        NoKey,
        /// The route isn't under the layer, or it doesn't cover the method. Answers 500.
        NoLayer,
    }

    impl IntoResponse for NoLease {
        fn into_response(self) -> Response {
            let told = match self {
                Self::NoKey => Told::of_refusal(&Refusal::KeyRequired),
                Self::NoLayer => Told::of_code(
                    "idempotency_policy",
                    "the handler takes a Lease, and no idempotency layer covers its route",
                ),
            };
            let entropy = semel_core::env::SystemEntropy;
            let response = render(&told, ErrorShape::Problem, None, &entropy);
            response.map(axum::body::Body::new)
        }
    }

    impl<S: Sync> FromRequestParts<S> for Lease {
        type Rejection = NoLease;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoLease> {
            match parts.extensions.get::<Self>() {
                Some(lease) => Ok(lease.clone()),
                None if parts.extensions.get::<Unkeyed>().is_some() => Err(NoLease::NoKey),
                None => Err(NoLease::NoLayer),
            }
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Lease {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }
}

#[cfg(feature = "axum")]
pub use extract::NoLease;
