//! [`Refusal`]: why a request is refused before it reaches the engine.

use semel_core::Code;
use semel_core::{CanonicalError, DataSubjectError, KeyError, KeyForm, NamespaceError};

/// Why a request was refused before the store was used. Never repeats what was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The key is missing, and the route requires one.
    #[error(
        "send an Idempotency-Key header: a value of your own, the same for every retry, such as a UUID"
    )]
    KeyRequired,
    /// There is more than one key.
    #[error("the key is given more than once; send exactly one")]
    KeyTwice,
    /// The key is neither bare nor a quoted string.
    #[error("the key is neither a quoted string nor a plain value; send for example \"k-1\"")]
    KeySyntax,
    /// The key breaks the rules.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key has another form than the route asks for.
    #[error("the key has another form than this route takes ({})", .form.name())]
    KeyForm {
        /// The form that the route asks for.
        form: KeyForm,
    },
    /// The route limits the age of keys, and the key carries no time.
    #[error("the key carries no time; send a UUIDv7 or a ULID, made for this operation")]
    KeyUntimed,
    /// The time that the key carries is in the future.
    #[error("the key was made in the future; set the clock of the client")]
    KeyAhead,
    /// The key is older than the route allows.
    #[error(
        "the key is too old: an earlier request with it may be forgotten; find out what became of \
         the operation before you send it with a new key"
    )]
    KeyTooOld,
    /// The time of a repeatable request is missing or malformed.
    #[error(
        "send Repeatability-Request-ID and Repeatability-First-Sent together, the latter once and \
         as an IMF-fixdate such as \"Sun, 06 Nov 1994 08:49:37 GMT\""
    )]
    FirstSent,
    /// The body has no canonical form.
    #[error("{0}; or let the route compare bodies by their bytes")]
    Payload(#[from] CanonicalError),
    /// The route has tenants, and the request names none.
    #[error("the request names no tenant, and this route needs one")]
    TenantRequired,
    /// Tenant, principal or scope is invalid.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The part of the path that names the scope can't be a part of it.
    #[error(
        "the part of the path that separates keys must have 1 to 64 of the characters A-Z a-z 0-9 \
         - . _ ~ : @"
    )]
    Scope,
    /// The subject of the data is invalid.
    #[error(transparent)]
    Subject(#[from] DataSubjectError),
    /// The requested retention is not a number of milliseconds.
    #[error("X-Idempotency-TTL must be a positive number of milliseconds")]
    Ttl,
    /// The body broke off.
    #[error("the request's body broke off; nothing was started")]
    BodyBroken,
    /// The body took too long.
    #[error("the request's body did not arrive in time; nothing was started")]
    BodySlow,
    /// The body exceeds the size limit.
    #[error("a request with a key may have a body of at most {most} bytes; nothing was started")]
    BodyTooLarge {
        /// The size limit in bytes.
        most: usize,
    },
    /// The memory budget for bodies is exhausted.
    #[error("the memory limit for request bodies is reached; nothing was started")]
    NoRoom,
    /// A gRPC request of more than one message.
    #[error("keys require unary gRPC calls of one message, without grpc-web; call without a key")]
    UnaryOnly,
    /// The path is ambiguous, and its readings have different rules.
    #[error(
        "the path is ambiguous, and its readings have different rules; send it without //, dot \
         segments, ;, \\ and escaped delimiters"
    )]
    PathAmbiguous,
    /// The caller keeps as many keys as its quota allows.
    #[error("your quota of idempotency keys is used up; nothing was started")]
    QuotaExceeded,
    /// The webhook's verifier refused the delivery.
    #[error("the webhook's signature is not valid")]
    Unverified,
}

impl Refusal {
    /// The code of the problem.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::KeyRequired => Code::KeyRequired,
            Self::KeyTwice
            | Self::KeySyntax
            | Self::Key(_)
            | Self::KeyForm { .. }
            | Self::KeyUntimed
            | Self::KeyAhead
            | Self::FirstSent => Code::KeyInvalid,
            Self::KeyTooOld => Code::KeyTooOld,
            Self::Payload(_) => Code::PayloadInvalid,
            Self::TenantRequired | Self::Namespace(_) => Code::TenantRequired,
            Self::Scope | Self::Subject(_) => Code::RequestInvalid,
            Self::Ttl => Code::TtlInvalid,
            Self::BodyBroken => Code::BodyBroken,
            Self::BodySlow => Code::BodySlow,
            Self::BodyTooLarge { .. } => Code::BodyTooLarge,
            Self::NoRoom => Code::NoRoom,
            Self::UnaryOnly => Code::UnaryOnly,
            Self::PathAmbiguous => Code::PathAmbiguous,
            Self::QuotaExceeded => Code::QuotaExceeded,
            Self::Unverified => Code::WebhookUnverified,
        }
    }
}
