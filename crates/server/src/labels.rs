//! Labels of event values, for the audit trail, the log and the metrics.

use semel_core::event::{BreakerState, BusyReason, ShadowDecision, StoreCall};
use semel_core::{Certainty, Fingerprint};

/// The first four bytes of the digest of a payload: enough to tell two payloads apart, too few to guess one.
pub(crate) fn hash_prefix(fingerprint: &Fingerprint) -> String {
    semel_core::hex::hex(&fingerprint.as_bytes()[1..5])
}

pub(crate) const fn busy(why: BusyReason) -> &'static str {
    match why {
        BusyReason::Policy => "policy",
        BusyReason::WaitedTooLong => "waited_too_long",
        BusyReason::KeyWaiters => "key_waiters",
        BusyReason::ProcessWaiters => "process_waiters",
        BusyReason::TenantWaiters => "tenant_waiters",
    }
}

pub(crate) const fn store_call(call: StoreCall) -> &'static str {
    match call {
        StoreCall::Claim => "claim",
        StoreCall::Renew => "renew",
        StoreCall::Settle => "settle",
        StoreCall::Resolve => "resolve",
        StoreCall::Read => "read",
        StoreCall::Delete => "delete",
    }
}

/// Whether a store call without an answer may have changed something.
pub(crate) const fn changed(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Definite => "no",
        Certainty::Unknown => "unknown",
    }
}

pub(crate) const fn breaker(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    }
}

pub(crate) const fn would(would: &ShadowDecision) -> &'static str {
    match would {
        ShadowDecision::Replay => "replay",
        ShadowDecision::Busy => "busy",
        ShadowDecision::Mismatch => "mismatch",
        ShadowDecision::InDoubt => "in_doubt",
        ShadowDecision::Unavailable => "unavailable",
        ShadowDecision::Refuse(code) => code.as_str(),
    }
}
