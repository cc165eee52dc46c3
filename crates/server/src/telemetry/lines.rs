//! [`Lines`]: the observer that logs. One line per event, with the names that operators know; a key only as its
//! first characters and the beginning of its hash.

#![expect(
    clippy::cognitive_complexity,
    clippy::too_many_lines,
    reason = "flat tables of one line per event: what is counted is what tracing's macro becomes"
)]

use std::fmt;
use std::time::Duration;

use semel_core::event::{BreakerState, BusyReason, Ending, Event, Observer, Step, StoreCall};
use semel_core::{Identity, KeyHint};
use tracing::Level;

use super::series::outcome;
use crate::audit::words;
use crate::config;

/// Where lines about requests come from: `log.level = "info,idempotency=debug"` shows them all.
macro_rules! line {
    ($level:ident, $event:ident, $name:literal, $said:literal, $($more:tt)*) => {
        tracing::event!(
            target: "idempotency",
            Level::$level,
            component = "idempotency",
            event = $name,
            scope = $event.namespace.scope(),
            tenant = named($event.namespace.tenant()),
            key = shown($event).as_ref().map(tracing::field::display),
            actor = $event.actor,
            $($more)*
            $said
        )
    };
}

/// Logs what happens.
pub(super) struct Lines {
    backend: &'static str,
    slow_store: Duration,
    slow_wait: Duration,
    debug_percent: u8,
    info_percent: u8,
}

impl Lines {
    pub(super) const fn new(config: &config::Log, backend: &'static str) -> Self {
        Self {
            backend,
            slow_store: config.slow_store.0,
            slow_wait: config.slow_wait.0,
            debug_percent: config.debug_percent,
            info_percent: config.requests_percent,
        }
    }

    fn answered(&self, event: &Event<'_>, how: Ending, took: Duration) {
        if !is_chosen(&event.identity, self.info_percent) {
            return;
        }
        let duration_ms = millis(took);
        match how {
            Ending::Ran => {
                line!(
                    INFO,
                    event,
                    "idempotency.processed",
                    "request ran",
                    duration_ms,
                );
            }
            Ending::Replayed(replay_count) => {
                line!(
                    INFO,
                    event,
                    "idempotency.replay",
                    "request answered from the record",
                    replay_count,
                    duration_ms,
                );
            }
            Ending::HandedOut => {
                line!(
                    INFO,
                    event,
                    "idempotency.handed_out",
                    "lease handed out",
                    duration_ms,
                );
            }
            // What went wrong has a line of its own.
            Ending::Unprotected | Ending::Problem(_) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.answered",
                    "request answered",
                    outcome = outcome(how),
                    duration_ms,
                );
            }
        }
    }

    fn of_store(&self, event: &Event<'_>) {
        let backend = self.backend;
        match event.step {
            Step::StoreCalled { call, took, .. } => {
                let (operation, duration_ms) = (words::store_call(call), millis(took));
                if took >= self.slow_store {
                    let threshold_ms = millis(self.slow_store);
                    line!(
                        WARN,
                        event,
                        "idempotency.storage.slow",
                        "the store was slow",
                        operation,
                        backend,
                        duration_ms,
                        threshold_ms,
                    );
                } else if call == StoreCall::Claim && self.debugs(event) {
                    line!(
                        DEBUG,
                        event,
                        "idempotency.cache.lookup",
                        "the store was asked",
                        operation,
                        backend,
                        storage_duration_ms = duration_ms,
                    );
                }
            }
            Step::StoreFailed { call, kind, .. } => {
                let (operation, error) = (words::store_call(call), kind.as_str());
                line!(
                    ERROR,
                    event,
                    "idempotency.storage.error",
                    "the store gave no answer",
                    operation,
                    backend,
                    error,
                );
            }
            Step::Breaker {
                state: BreakerState::Open,
            } => {
                line!(
                    WARN,
                    event,
                    "idempotency.circuit_breaker.opened",
                    "the store is left alone for a while",
                    backend,
                );
            }
            Step::Breaker {
                state: BreakerState::HalfOpen,
            } => {
                line!(
                    INFO,
                    event,
                    "idempotency.circuit_breaker.half_open",
                    "one request tries the store",
                    backend,
                );
            }
            Step::Breaker {
                state: BreakerState::Closed,
            } => {
                line!(
                    INFO,
                    event,
                    "idempotency.circuit_breaker.closed",
                    "the store answers again",
                    backend,
                );
            }
            Step::NotAsked if self.debugs(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.circuit_breaker.rejected",
                    "the store was not asked",
                    backend,
                );
            }
            _ => {}
        }
    }

    fn of_waiting(&self, event: &Event<'_>) {
        match event.step {
            Step::WaitBegan if self.debugs(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.lock.attempt",
                    "waiting for another's run",
                );
            }
            Step::WaitEnded { waited } if waited >= self.slow_wait => {
                line!(
                    WARN,
                    event,
                    "idempotency.lock.contention",
                    "a caller waited long",
                    wait_time_ms = millis(waited),
                );
            }
            Step::Busy {
                why: BusyReason::WaitedTooLong,
            } => {
                line!(
                    ERROR,
                    event,
                    "idempotency.lock.timeout",
                    "a caller waited in vain",
                );
            }
            Step::Busy { why } if self.debugs(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.busy",
                    "a caller was told that another runs",
                    why = words::busy(why),
                );
            }
            _ => {}
        }
    }

    fn of_records(event: &Event<'_>) {
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

    fn debugs(&self, event: &Event<'_>) -> bool {
        tracing::enabled!(target: "idempotency", Level::DEBUG)
            && is_chosen(&event.identity, self.debug_percent)
    }
}

impl Observer for Lines {
    fn observe(&self, event: &Event<'_>) {
        match event.step {
            Step::Answered { how, took, .. } => self.answered(event, how, took),
            Step::StoreCalled { .. }
            | Step::StoreFailed { .. }
            | Step::Breaker { .. }
            | Step::NotAsked => self.of_store(event),
            Step::WaitBegan | Step::WaitEnded { .. } | Step::Busy { .. } => self.of_waiting(event),
            Step::Refused { code } if self.debugs(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.refused",
                    "a request was refused at the door",
                    code,
                );
            }
            _ => Self::of_records(event),
        }
    }
}

/// Chosen by the key's hash: all lines of a key are kept or none, on every node alike.
fn is_chosen(identity: &Identity, percent: u8) -> bool {
    let [low, high, ..] = *identity.as_bytes();
    u32::from(u16::from_le_bytes([low, high])) * 100 < u32::from(percent) << 16
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn named(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// A key as a log may show it.
struct Shown(KeyHint, Identity);

fn shown(event: &Event<'_>) -> Option<Shown> {
    let is_known = *event.identity.as_bytes() != [0; 32];
    is_known.then_some(Shown(event.hint, event.identity))
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.1.as_bytes();
        write!(f, "{}...{a:02x}{b:02x}{c:02x}{d:02x}", self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_of_keys_is_chosen() {
        let count = |percent| {
            let chosen = |n: &u32| {
                let hash = blake3::hash(&n.to_le_bytes());
                is_chosen(&Identity::from_bytes(*hash.as_bytes()), percent)
            };
            (0..10_000_u32).filter(chosen).count()
        };
        assert_eq!(count(0), 0);
        assert_eq!(count(100), 10_000);
        assert!((50..150).contains(&count(1)), "{}", count(1));
    }
}
