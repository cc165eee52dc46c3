//! The words for what events tell: the same in the trail, the log and the metrics.

use semel_core::event::{BreakerState, BusyReason, StoreCall, Would};

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
    }
}

pub(crate) const fn breaker(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    }
}

pub(crate) const fn would(would: &Would) -> &'static str {
    match would {
        Would::Replay => "replay",
        Would::Busy => "busy",
        Would::Mismatch => "mismatch",
        Would::InDoubt => "in_doubt",
        Would::Unavailable => "unavailable",
        Would::Refuse(code) => code,
    }
}
