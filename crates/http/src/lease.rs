//! [`HandlerLease`]: the lease that a handler holds while it runs.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use semel_core::engine;

/// The lease of the request that a handler runs for: the fence, a key to pass on, a place for
/// progress, and a way to say what became of the effect.
///
/// In the request's extensions; with feature `axum` also an extractor. `Option<HandlerLease>` takes
/// requests without a key as well.
///
/// ```
/// use semel_http::HandlerLease;
///
/// async fn charge(lease: HandlerLease) -> &'static str {
///     let _for_the_provider = lease.derive_key("psp");
///     let _refuses_older = lease.fence();
///     "charged"
/// }
/// # let _ = charge;
/// ```
#[derive(Clone, Debug)]
pub struct HandlerLease {
    lease: engine::Lease,
    mark: Arc<AtomicU8>,
}

/// The outcome of the effect, if the handler knows more than the status of its response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum EffectOutcome {
    /// Nothing happened: the key is freed, whatever the status.
    NoEffect = 1,
    /// The outcome is unknown: the key is in doubt until it is resolved.
    Unknown = 2,
}

/// Marks covered requests without a key, in their extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnkeyedRequest;

impl HandlerLease {
    pub(crate) fn new(lease: engine::Lease) -> Self {
        Self {
            lease,
            mark: Arc::default(),
        }
    }

    /// Records the outcome of the effect, if the status of the response does not say it. The last
    /// call wins.
    ///
    /// Use [`EffectOutcome::NoEffect`] only if it is certain: the next request with the key runs
    /// again.
    pub fn mark(&self, outcome: EffectOutcome) {
        self.mark.store(outcome as u8, Ordering::SeqCst);
    }

    pub(crate) fn marked(&self) -> Option<EffectOutcome> {
        match self.mark.load(Ordering::SeqCst) {
            1 => Some(EffectOutcome::NoEffect),
            2 => Some(EffectOutcome::Unknown),
            _ => None,
        }
    }
}

impl Deref for HandlerLease {
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
    use semel_core::Code;

    use super::{HandlerLease, UnkeyedRequest};
    use crate::problem::{ProblemDetails, Refusal, render};
    use crate::profile::ErrorShape;

    /// Why there is no lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum LeaseRejection {
        /// The request has no key. The response is 400.
        NoKey,
        /// The layer does not cover the route or the method. The response is 500.
        NoLayer,
    }

    impl IntoResponse for LeaseRejection {
        fn into_response(self) -> Response {
            let details = match self {
                Self::NoKey => ProblemDetails::from_refusal(&Refusal::KeyRequired),
                Self::NoLayer => ProblemDetails::new(
                    Code::Policy,
                    "the handler takes a HandlerLease, but no idempotency layer covers its route",
                ),
            };
            let entropy = semel_core::env::SystemEntropy;
            let response = render(&details, ErrorShape::Problem, None, &entropy);
            response.map(axum::body::Body::new)
        }
    }

    impl<S: Sync> FromRequestParts<S> for HandlerLease {
        type Rejection = LeaseRejection;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LeaseRejection> {
            match parts.extensions.get::<Self>() {
                Some(lease) => Ok(lease.clone()),
                None if parts.extensions.get::<UnkeyedRequest>().is_some() => {
                    Err(LeaseRejection::NoKey)
                }
                None => Err(LeaseRejection::NoLayer),
            }
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for HandlerLease {
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
pub use extract::LeaseRejection;
