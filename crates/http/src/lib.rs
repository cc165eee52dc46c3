//! Semel's tower layer: idempotent HTTP for axum, hyper and anything else that speaks tower; gRPC
//! too.
//!
//! Most users want `semel` with feature `axum`, and `semel.http()`. This crate is the door alone:
//! it reads key and fingerprint, hands them to [`semel_core::engine`], and writes the answer. It
//! decides nothing.
//!
//! | module | step of a request |
//! |---|---|
//! | `layer`, `route`, `rules`, `routing`, `pattern` | what is covered, and how |
//! | `entry`, `key`, `payload`, `paths`, `body` | key and fingerprint, or a refusal |
//! | `service`, `lease` | the handler as the engine's effect |
//! | `reply`, `head` | records a response, and replays it |
//! | `problem`, `profile`, `repeatable` | error documents and conventions |
//! | `announce`, `openapi` | what clients are told about keys |
//! | `grpc`, `webhook`, `cors` | the same for gRPC calls, webhooks and browsers |
//!
//! ```
//! use semel_http::{Body, IdempotencyLayer};
//! use tower_layer::Layer as _;
//!
//! # fn build(engine: semel_core::engine::Engine) {
//! # #[derive(Clone)] struct Handler;
//! let layer = IdempotencyLayer::new(engine);
//! let service = layer.layer(Handler); // any tower service of `http::Request<semel_http::Body>`
//! # let _ = service;
//! # }
//! ```

mod announce;
mod body;
pub mod cors;
mod credentials;
mod entry;
mod error;
mod grpc;
mod head;
mod hooks;
mod key;
mod layer;
mod lease;
mod openapi;
mod paths;
mod pattern;
mod payload;
mod problem;
mod profile;
mod reading;
mod repeatable;
mod reply;
mod route;
mod routing;
mod rules;
mod scope;
mod service;
mod webhook;

pub use announce::{IDEMPOTENCY_KEY_LIFETIME, IDEMPOTENCY_KEY_RULES};
pub use body::{Body, BodyRoom, BoxError, TakeBytes};
pub use credentials::{
    CREDENTIAL_HEADERS, ClientCertificate, CountedCredential, CredentialRules, asks_to_sign_in,
    has_credentials,
};
pub use error::BuildError;
pub use head::{HeadError, StoredHead};
pub use hooks::{AuthorizeReplay, CountKeys, KeyQuota};
pub use key::{IDEMPOTENCY_KEY, KeySource, X_IDEMPOTENCY_KEY, read_key};
pub use layer::{IdempotencyLayer, LayerBuilder, key_openapi};
#[cfg(feature = "axum")]
pub use lease::LeaseRejection;
pub use lease::{EffectOutcome, HandlerLease};
pub use payload::{BodyComparison, Payload};
pub use problem::{ProblemDetails, Refusal};
pub use profile::{ErrorShape, PROFILES, Profile, ProfileTerms};
pub use reading::has_dot_segments;
pub use repeatable::{REPEATABILITY_FIRST_SENT, REPEATABILITY_REQUEST_ID, REPEATABILITY_RESULT};
pub use reply::{IDEMPOTENT_NOT_KEPT, IDEMPOTENT_REPLAYED, X_ORIGINAL_REQUEST_TIME};
pub use route::{BodyLimits, KEPT_HEADERS, Route};
pub use rules::X_IDEMPOTENCY_TTL;
pub use semel_core::time::rfc3339;
pub use service::{IdempotencyService, X_REQUEST_ID};
pub use webhook::webhook;
#[cfg(feature = "webhook")]
pub use webhook::{StandardWebhooks, WebhookSecretError};
