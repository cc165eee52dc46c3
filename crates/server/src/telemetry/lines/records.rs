//! Lines about what became of a record.

use semel_core::event::{Event, Step};
use tracing::Level;

use super::shown::{named, shown};
use crate::audit::words;

pub(super) fn of_records(event: &Event<'_>) {
    match event.step {
        Step::Claimed { attempt, fence, .. } if attempt > 1 => {
            line!(
                WARN,
                event,
                "idempotency.lock.abandoned",
                "a vanished owner's lease was taken over",
                attempt,
                fence = fence.0,
            );
        }
        Step::Mismatched => {
            line!(
                ERROR,
                event,
                "idempotency.conflict",
                "a key was used with another payload",
                conflict_type = "payload_mismatch",
            );
        }
        Step::Oversized { bytes, most } => {
            line!(
                ERROR,
                event,
                "idempotency.cache.oversized",
                "an answer is too large to keep",
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
                "an effect ran and its outcome could not be recorded",
                fence = fence.0,
            );
        }
        Step::InDoubt { fence } => {
            line!(
                WARN,
                event,
                "idempotency.in_doubt",
                "a caller met an unknown outcome",
                fence = fence.0,
            );
        }
        Step::FailedOpen => {
            line!(
                WARN,
                event,
                "idempotency.failed_open",
                "an effect runs unprotected",
            );
        }
        Step::Deleted => {
            line!(
                INFO,
                event,
                "idempotency.key.expired",
                "a key was made as new",
                reason = "explicit_delete",
            );
        }
        Step::Resolved { state, fence } => {
            line!(
                INFO,
                event,
                "idempotency.resolved",
                "a doubt was ended",
                state = state.as_str(),
                fence = fence.0,
            );
        }
        Step::Unlocked { state, fence } => {
            line!(
                INFO,
                event,
                "idempotency.unlocked",
                "a lease was taken away",
                state = state.as_str(),
                fence = fence.0,
            );
        }
        Step::Observed { ref would } => {
            line!(
                INFO,
                event,
                "idempotency.observed",
                "observed only",
                would = words::would(would),
            );
        }
        _ => {}
    }
}
