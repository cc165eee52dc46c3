//! Log lines about changes of records.

use semel_core::event::{Event, Step};
use tracing::Level;

use super::key_label::{key_label, non_empty};
use crate::labels;
use semel_core::time::rfc3339_millis;

/// Logs an event that changes a record or the outcome of a request.
pub(super) fn log_record_event(event: &Event<'_>) {
    match event.step {
        Step::Claimed { attempt, fence, .. } if attempt > 1 => {
            line!(
                WARN,
                event,
                "idempotency.lock.abandoned",
                "the lease of a crashed owner was taken over",
                attempt,
                fence = fence.0,
            );
        }
        Step::Mismatched { asked, original } => {
            line!(
                ERROR,
                event,
                "idempotency.conflict",
                "a key was used with another payload",
                conflict_type = "payload_mismatch",
                original_hash = labels::hash_prefix(&original.fingerprint),
                current_hash = labels::hash_prefix(&asked),
                original_timestamp = original.requested_at.map(rfc3339_millis),
            );
        }
        Step::Held { asked, original } => {
            line!(
                WARN,
                event,
                "idempotency.held",
                "a call resembles an earlier one, and was held",
                original_hash = labels::hash_prefix(&original.fingerprint),
                current_hash = labels::hash_prefix(&asked),
                original_timestamp = original.requested_at.map(rfc3339_millis),
            );
        }
        Step::Oversized { bytes, most } => {
            line!(
                ERROR,
                event,
                "idempotency.cache.oversized",
                "a response is too large to keep",
                response_size_bytes = bytes,
                max_size_bytes = most,
            );
        }
        Step::LeaseLost { fence } => {
            line!(
                ERROR,
                event,
                "idempotency.lease.lost",
                "an owner lost its lease",
                fence = fence.0,
            );
        }
        Step::Unrecorded { fence } => {
            line!(
                ERROR,
                event,
                "idempotency.unrecorded",
                "an effect ran, but its outcome could not be recorded",
                fence = fence.0,
            );
        }
        Step::InDoubt { fence } => {
            line!(
                WARN,
                event,
                "idempotency.in_doubt",
                "a request met a key in doubt",
                fence = fence.0,
            );
        }
        Step::FailedOpen => {
            line!(
                WARN,
                event,
                "idempotency.failed_open",
                "an effect runs without protection because the store is down",
            );
        }
        Step::Deleted => {
            line!(
                INFO,
                event,
                "idempotency.key.expired",
                "an operator reset a key",
                reason = "explicit_delete",
                records = 1,
            );
        }
        Step::Swept { records } => {
            line!(
                INFO,
                event,
                "idempotency.key.expired",
                "expired records were removed",
                reason = "ttl_elapsed",
                records,
            );
        }
        Step::Resolved { state, fence } => {
            line!(
                INFO,
                event,
                "idempotency.resolved",
                "a key in doubt was resolved",
                state = state.as_str(),
                fence = fence.0,
            );
        }
        Step::Verified {
            fence,
            found,
            attempts,
            evidence,
        } => {
            line!(
                INFO,
                event,
                "idempotency.verified",
                "the outcome of a key in doubt was looked up",
                found = found.as_str(),
                attempts,
                evidence = evidence.as_ref().map(labels::hash_prefix),
                fence = fence.0,
            );
        }
        Step::Unlocked { state, fence } => {
            line!(
                INFO,
                event,
                "idempotency.unlocked",
                "an operator unlocked a key",
                state = state.as_str(),
                fence = fence.0,
            );
        }
        Step::Observed {
            decision: ref would,
        } => {
            line!(
                INFO,
                event,
                "idempotency.observed",
                "observe mode: a duplicate was not blocked",
                would = would.as_str(),
            );
        }
        _ => {}
    }
}
