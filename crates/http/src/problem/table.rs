//! The table of problems.

/// One row of the table of problems.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The stable word for it.
    pub code: &'static str,
    /// The status, where no profile says otherwise.
    pub status: u16,
    /// The status of a gRPC call.
    pub grpc: u8,
    /// Whether the same request may get an answer later.
    pub retryable: bool,
    /// What it is, in a few words.
    pub title: &'static str,
}

const fn row(
    code: &'static str,
    (status, grpc): (u16, u8),
    retryable: bool,
    title: &'static str,
) -> Row {
    Row {
        code,
        status,
        grpc,
        retryable,
        title,
    }
}

/// Every problem that a caller can meet: code, status of HTTP and gRPC, retryable, title.
#[rustfmt::skip]
pub const PROBLEMS: &[Row] = &[
    row("idempotency_key_required", (400, 3), false, "This operation needs an Idempotency-Key"),
    row("idempotency_key_invalid", (400, 3), false, "The Idempotency-Key can't be used"),
    row("idempotency_payload_invalid", (400, 3), false, "The payload can't be compared"),
    row("idempotency_tenant_required", (400, 3), false, "The request names no tenant"),
    row("idempotency_ttl_invalid", (400, 3), false, "The X-Idempotency-TTL can't be used"),
    row("idempotency_body_broken", (400, 13), true, "The request's body broke off"),
    row("idempotency_body_slow", (408, 4), true, "The request's body took too long"),
    row("idempotency_body_too_large", (413, 8), false, "The request's body is too large to be compared"),
    row("idempotency_no_room", (503, 8), true, "There is no room for the request's body now"),
    row("idempotency_unary_only", (400, 12), false, "Keys work on unary calls"),
    row("idempotency_path_ambiguous", (400, 3), false, "The path can be read in several ways"),
    row("webhook_unverified", (401, 16), false, "The webhook's signature is not valid"),
    row("idempotency_conflict", (422, 9), false, "The key was used with another payload"),
    row("idempotency_in_flight", (409, 10), true, "A request with this key is still running"),
    row("idempotency_too_many_waiters", (429, 8), true, "Too many requests with this key are waiting"),
    row("idempotency_in_doubt", (409, 9), false, "Whether an earlier request took effect is not known"),
    row("idempotency_store_unavailable", (503, 14), true, "The request was not started"),
    row("idempotency_record_unreadable", (500, 13), false, "The record of this key can't be read"),
    row("idempotency_body_unavailable", (503, 14), true, "Answered before; the answer's body doesn't come now"),
    row("idempotency_late", (503, 14), true, "The request was not started in time"),
    row("idempotency_lease_lost", (503, 14), true, "Another took the request over"),
    row("idempotency_unrecorded", (503, 14), true, "The outcome could not be recorded"),
    row("idempotency_effect_panicked", (500, 13), true, "The request failed unexpectedly"),
    row("idempotency_answer_broken", (502, 13), true, "The answer broke off"),
    row("idempotency_shut_down", (503, 14), true, "The server is shutting down"),
    row("idempotency_policy", (500, 13), false, "The route's policy can't be used"),
    row("idempotency_answer_unreadable", (500, 13), false, "The stored answer can't be read"),
    row("request_invalid", (400, 3), false, "The request can't be read"),
    row("unauthorized", (401, 16), false, "The request carries no valid credential"),
    row("forbidden", (403, 7), false, "The credential doesn't cover this"),
    row("not_found", (404, 5), false, "There is no such thing"),
    row("method_not_allowed", (405, 12), false, "The method isn't one of this address"),
    row("media_type_unsupported", (415, 3), false, "The body isn't of a kind that is taken"),
    row("request_refused", (422, 3), false, "The request is well formed, and can't be granted"),
    row("moved_on", (409, 9), false, "The record isn't any more what was looked at"),
    row("jobs_queue_full", (429, 8), true, "As many jobs wait as may"),
    row("jobs_lease_lost", (409, 9), false, "The job is not this worker's any more"),
    row("jobs_not_dead", (409, 9), false, "The job is no dead letter, or its key stands for another job"),
    row("too_many_streams", (429, 8), true, "Too many streams are open"),
    row("audit_unavailable", (503, 14), true, "The change could not be audited, and was not made"),
    row("idempotency_body_not_kept", (200, 15), false, "Done before; the answer's body was not kept"),
];

/// The row of `code`; the tests hold that there is one.
pub(crate) fn row_of(code: &str) -> Row {
    let found = PROBLEMS.iter().find(|row| row.code == code);
    found.copied().unwrap_or(PROBLEMS[0])
}
