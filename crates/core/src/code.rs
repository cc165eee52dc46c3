//! Problem codes: stable names for everything that can go wrong for a caller.
//!
//! Every door writes them: the tower layer and the sidecar as RFC 9457 problem documents, gRPC as
//! trailers, the protocol API, jobs, the MCP gateway. Logs and metrics have them as labels.
//! `docs/errors` has a page for each.

/// Writes the enum, and the table behind it.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $grpc:expr, $retryable:literal, $title:literal;)+) => {
        /// The stable name of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)+
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name, as it is written in documents, logs and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The HTTP status, if no profile says otherwise.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// The status of a gRPC call, for the codes that the layer gives one.
            #[must_use]
            pub const fn grpc(self) -> Option<u8> {
                match self { $(Self::$name => $grpc,)+ }
            }

            /// Whether the same request may get an answer later.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)+ }
            }

            /// What it is, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }
        }
    };
}

codes! {
    /// The route needs a key.
    KeyRequired = "idempotency_key_required", 400, Some(3), false, "This operation needs an Idempotency-Key";
    /// The key is malformed.
    KeyInvalid = "idempotency_key_invalid", 400, Some(3), false, "The Idempotency-Key is invalid";
    /// The key carries a time that is too long ago.
    KeyTooOld = "idempotency_key_too_old", 412, Some(9), false, "The Idempotency-Key is too old";
    /// The payload has no single reading.
    PayloadInvalid = "idempotency_payload_invalid", 400, Some(3), false, "The payload cannot be compared";
    /// The request names no tenant.
    TenantRequired = "idempotency_tenant_required", 400, Some(3), false, "The request names no tenant";
    /// The retention that the caller asks for is malformed.
    TtlInvalid = "idempotency_ttl_invalid", 400, Some(3), false, "The X-Idempotency-TTL header is invalid";
    /// The request's body ended early.
    BodyBroken = "idempotency_body_broken", 400, Some(13), true, "The request body ended early";
    /// The request's body arrived too slowly.
    BodySlow = "idempotency_body_slow", 408, Some(4), true, "The request body took too long";
    /// The request's body is too large to be compared.
    BodyTooLarge = "idempotency_body_too_large", 413, Some(8), false, "The request body is too large to be compared";
    /// The process buffers as many bytes as it may.
    NoRoom = "idempotency_no_room", 503, Some(8), true, "There is no room for the request body now";
    /// Keys work on unary gRPC calls.
    UnaryOnly = "idempotency_unary_only", 400, Some(12), false, "Idempotency keys work on unary calls only";
    /// The path has several readings.
    PathAmbiguous = "idempotency_path_ambiguous", 400, Some(3), false, "The path can be read in several ways";
    /// The caller keeps as many keys as its quota allows.
    QuotaExceeded = "idempotency_quota_exceeded", 429, Some(8), true, "The quota of idempotency keys is used up";
    /// The signature of a webhook is wrong.
    WebhookUnverified = "webhook_unverified", 401, Some(16), false, "The webhook's signature is not valid";
    /// The key was used with another payload.
    Conflict = "idempotency_conflict", 422, Some(9), false, "The key was used with another payload";
    /// The call resembles an earlier one in all that identifies it, and differs in the rest.
    Held = "idempotency_held", 409, Some(9), false, "The call resembles an earlier one and was held";
    /// A request with this key is running.
    InFlight = "idempotency_in_flight", 409, Some(10), true, "A request with this key is still running";
    /// Too many requests wait for this key, or in this process.
    TooManyWaiters = "idempotency_too_many_waiters", 429, Some(8), true, "Too many requests with this key are waiting";
    /// The outcome of an earlier request is unknown.
    InDoubt = "idempotency_in_doubt", 409, Some(9), false, "The outcome of an earlier request is unknown";
    /// The store does not answer.
    StoreUnavailable = "idempotency_store_unavailable", 503, Some(14), true, "The store is unavailable; the request was not started";
    /// The record is damaged, or of a newer version.
    RecordUnreadable = "idempotency_record_unreadable", 500, Some(13), false, "The record of this key cannot be read";
    /// Done before; the answer was erased.
    AnswerErased = "idempotency_answer_erased", 410, Some(9), false, "Done before; the stored response was erased";
    /// Done before; the answer was kept for a shorter time than the record.
    AnswerExpired = "idempotency_answer_expired", 410, Some(9), false, "Done before; the stored response has expired";
    /// The body of a stored answer could not be loaded.
    BodyUnavailable = "idempotency_body_unavailable", 503, Some(14), true, "The stored response body could not be loaded";
    /// The request's deadline passed before it was started.
    Late = "idempotency_late", 503, Some(14), true, "The request was not started in time";
    /// Another process took the request over.
    LeaseLost = "idempotency_lease_lost", 503, Some(14), true, "Another process took the request over";
    /// The lease that was named is not held any more.
    LeaseNotHeld = "idempotency_lease_not_held", 409, Some(9), false, "The lease is not held any more";
    /// The effect ran, and its outcome could not be recorded.
    Unrecorded = "idempotency_unrecorded", 503, Some(14), true, "The outcome could not be recorded";
    /// The effect panicked.
    EffectPanicked = "idempotency_effect_panicked", 500, Some(13), true, "The request failed unexpectedly";
    /// The answer ended early.
    AnswerBroken = "idempotency_answer_broken", 502, Some(13), true, "The response ended early";
    /// The process shuts down.
    ShutDown = "idempotency_shut_down", 503, Some(14), true, "The server is shutting down";
    /// The route's policy is out of bounds.
    Policy = "idempotency_policy", 500, Some(13), false, "The route's policy is invalid";
    /// The stored answer is damaged.
    AnswerUnreadable = "idempotency_answer_unreadable", 500, Some(13), false, "The stored response cannot be read";
    /// Done before; the answer's body was not kept.
    BodyNotKept = "idempotency_body_not_kept", 200, Some(15), false, "Done before; the response body was not kept";
    /// The request is malformed.
    RequestInvalid = "request_invalid", 400, Some(3), false, "The request is malformed";
    /// There is no valid credential.
    Unauthorized = "unauthorized", 401, Some(16), false, "The request carries no valid credential";
    /// The credential does not cover this.
    Forbidden = "forbidden", 403, Some(7), false, "The credential does not allow this";
    /// There is nothing here.
    NotFound = "not_found", 404, Some(5), false, "Not found";
    /// The resource has no such method.
    MethodNotAllowed = "method_not_allowed", 405, Some(12), false, "The method is not allowed here";
    /// The body has another media type.
    MediaTypeUnsupported = "media_type_unsupported", 415, Some(3), false, "The media type is not supported";
    /// The request is well-formed and cannot be granted.
    RequestRefused = "request_refused", 422, Some(3), false, "The request cannot be granted";
    /// The record has changed since it was read.
    MovedOn = "moved_on", 409, Some(9), false, "The record has changed since it was read";
    /// The job queue is full.
    JobsQueueFull = "jobs_queue_full", 429, Some(8), true, "The queue is full";
    /// The worker's lease on the job is gone.
    JobsLeaseLost = "jobs_lease_lost", 409, Some(9), false, "The job is leased to another worker";
    /// Only a dead letter can be retried.
    JobsNotDead = "jobs_not_dead", 409, Some(9), false, "Only a dead-lettered job can be retried";
    /// Too many event streams are open.
    TooManyStreams = "too_many_streams", 429, Some(8), true, "Too many streams are open";
    /// The audit trail cannot be written.
    AuditUnavailable = "audit_unavailable", 503, Some(14), true, "The change could not be audited, and was not made";
    /// The process is at its limit.
    Overloaded = "overloaded", 503, None, true, "The server has too many requests in progress";
    /// The caller is at its share of the limits.
    TooManyRequests = "too_many_requests", 429, None, true, "You have too many requests in progress";
    /// The caller sends too fast.
    RateLimited = "rate_limited", 429, None, true, "Too many requests per second";
    /// Whether a caller may have a stored response could not be checked.
    ReplayAuthUnavailable = "replay_authorization_unavailable", 503, None, true, "The authorization of a replay could not be checked";
    /// The service cannot be connected to.
    UpstreamUnreachable = "upstream_unreachable", 502, None, true, "The service cannot be reached";
    /// The service has as many requests as it may.
    UpstreamFull = "upstream_full", 503, None, true, "The service has too many requests in progress";
    /// The service did not answer in time.
    UpstreamTimeout = "upstream_timeout", 504, None, true, "The service did not answer in time";
    /// The connection to the service broke.
    UpstreamBroken = "upstream_broken", 502, None, true, "The connection to the service broke";
    /// The request is of a kind that a reverse proxy does not forward.
    RequestNotForwardable = "request_not_forwardable", 400, None, false, "The request cannot be forwarded";
    /// The body of a request without a key is too large.
    RequestTooLarge = "request_too_large", 413, None, false, "The request body is too large";
    /// The body of a request without a key arrived too slowly.
    RequestSlow = "request_slow", 408, None, false, "The request body took too long";
    /// The body of a request without a key ended early.
    RequestBroken = "request_broken", 400, None, false, "The request body ended early";
    /// The tenant or the caller is read from a token, and there is no valid one.
    TokenRequired = "token_required", 401, None, false, "A valid token is required";
    /// The request has two lengths.
    RequestAmbiguous = "request_ambiguous", 400, None, false, "The length of the request can be read in two ways";
    /// The name of a header has an underscore.
    HeaderNameAmbiguous = "header_name_ambiguous", 400, None, false, "The name of a header has an underscore";
    /// A tool call was not sent.
    NotSent = "idempotency_not_sent", 503, None, true, "The call was not sent";
    /// The connection to a tool's server ended before the answer.
    Lost = "idempotency_lost", 502, None, true, "The connection ended before the answer";
    /// The key of a tool call has no place.
    Refused = "idempotency_refused", 400, None, false, "The call was refused";
    /// The result of a tool call was too large to be kept.
    NotKept = "idempotency_not_kept", 200, None, false, "Done before; the result was not kept";
    /// An operator recorded that a tool call failed.
    Failed = "idempotency_failed", 200, None, false, "An operator recorded that the call failed";
    /// An operator, or a lookup, recorded that a tool call took effect.
    NoResult = "idempotency_no_result", 200, None, false, "The call took effect, and there is no result of it";
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text isn't the name of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown problem code")]
pub struct UnknownCode;

impl std::str::FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let found = Self::ALL.iter().find(|code| code.as_str() == text);
        found.copied().ok_or(UnknownCode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_unique_name() {
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.as_str().parse(), Ok(*code));
            let others = &Code::ALL[..index];
            assert!(others.iter().all(|other| other.as_str() != code.as_str()));
        }
        assert_eq!("idempotency_typo".parse::<Code>(), Err(UnknownCode));
    }
}
