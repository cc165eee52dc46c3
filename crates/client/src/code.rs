//! The codes by which the client decides whether to ask again.
//!
//! Made by `cargo xtask generate` from `semel_core::Code`; do not edit.

pub(crate) const AUDIT_UNAVAILABLE: &str = "audit_unavailable";
pub(crate) const BODY_BROKEN: &str = "idempotency_body_broken";
pub(crate) const BODY_SLOW: &str = "idempotency_body_slow";
pub(crate) const CONFLICT: &str = "idempotency_conflict";
pub(crate) const IN_DOUBT: &str = "idempotency_in_doubt";
pub(crate) const IN_FLIGHT: &str = "idempotency_in_flight";
pub(crate) const LATE: &str = "idempotency_late";
pub(crate) const NO_ROOM: &str = "idempotency_no_room";
pub(crate) const OVERLOADED: &str = "overloaded";
pub(crate) const RATE_LIMITED: &str = "rate_limited";
pub(crate) const RECORD_UNREADABLE: &str = "idempotency_record_unreadable";
pub(crate) const STORE_UNAVAILABLE: &str = "idempotency_store_unavailable";
pub(crate) const TOO_MANY_REQUESTS: &str = "too_many_requests";
pub(crate) const TOO_MANY_WAITERS: &str = "idempotency_too_many_waiters";
pub(crate) const UPSTREAM_UNREACHABLE: &str = "upstream_unreachable";
