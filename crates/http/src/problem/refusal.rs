//! Why a request is refused at the door.

use semel_core::{CanonicalError, KeyError, NamespaceError};

/// Why a request was refused before any store was asked. Never repeats what was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no key, and the route requires one.
    #[error(
        "send an Idempotency-Key header: a value of your own, the same for every retry, such as a UUID"
    )]
    KeyRequired,
    /// There is more than one.
    #[error("the key is given more than once; send exactly one")]
    KeyTwice,
    /// It is neither bare nor a quoted string.
    #[error("the key is neither a quoted string nor a plain value; send for example \"k-1\"")]
    KeySyntax,
    /// It breaks the rules.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The body has no canonical form.
    #[error("{0}; or let the route compare bodies by their bytes")]
    Payload(#[from] CanonicalError),
    /// The route has tenants, and the request names none.
    #[error("the request names no tenant, and this route needs one")]
    TenantRequired,
    /// Tenant, principal or scope can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The wished-for retention is no number of milliseconds.
    #[error("X-Idempotency-TTL is a number of milliseconds from 1 up")]
    Ttl,
    /// The body broke off.
    #[error("the request's body broke off; nothing was started")]
    BodyBroken,
    /// The body took too long.
    #[error("the request's body did not arrive in time; nothing was started")]
    BodySlow,
    /// The body has more bytes than are taken.
    #[error("a request with a key may have a body of at most {most} bytes; nothing was started")]
    BodyTooLarge {
        /// The most bytes taken.
        most: usize,
    },
    /// Too many bodies are held in memory.
    #[error("as many bodies are held in memory as may be; nothing was started")]
    NoRoom,
    /// A gRPC request of more than one message.
    #[error("a key works on unary calls: one message, unencoded by grpc-web; call without a key")]
    UnaryOnly,
    /// The path can be read in two ways, and different rules hold for them.
    #[error(
        "the path can be read in several ways, for which different rules hold; send it without //, dot segments, ;, \\ and escaped delimiters"
    )]
    PathAmbiguous,
    /// The webhook's verifier said no.
    #[error("the webhook's signature is not valid")]
    Unverified,
}

impl Refusal {
    /// The word for it in the table of problems.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::KeyRequired => "idempotency_key_required",
            Self::KeyTwice | Self::KeySyntax | Self::Key(_) => "idempotency_key_invalid",
            Self::Payload(_) => "idempotency_payload_invalid",
            Self::TenantRequired | Self::Namespace(_) => "idempotency_tenant_required",
            Self::Ttl => "idempotency_ttl_invalid",
            Self::BodyBroken => "idempotency_body_broken",
            Self::BodySlow => "idempotency_body_slow",
            Self::BodyTooLarge { .. } => "idempotency_body_too_large",
            Self::NoRoom => "idempotency_no_room",
            Self::UnaryOnly => "idempotency_unary_only",
            Self::PathAmbiguous => "idempotency_path_ambiguous",
            Self::Unverified => "webhook_unverified",
        }
    }
}
