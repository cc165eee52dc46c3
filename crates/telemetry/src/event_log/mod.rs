//! [`EventLog`]: the observer that writes one structured log line per event.
//!
//! A line shows only the first characters of a key and the beginning of its hash.

#![expect(
    clippy::cognitive_complexity,
    clippy::too_many_lines,
    reason = "flat tables of one line per event; the lints count the expansion of tracing's macro"
)]

use std::time::Duration;

use semel_core::event::{BreakerState, BusyReason, Ending, Event, Observer, Step};
use semel_core::time::{rfc3339_millis, to_millis};
use tracing::Level;

use crate::TelemetryConfig;
use crate::labels::{self, outcome};

/// A log line about a request. `log.level = "info,idempotency=debug"` shows them all.
macro_rules! line {
    ($level:ident, $event:ident, $name:literal, $message:literal, $($more:tt)*) => {
        tracing::event!(
            target: "idempotency",
            Level::$level,
            component = "idempotency",
            event = $name,
            scope = $event.namespace.scope(),
            tenant = non_empty($event.namespace.tenant()),
            key = key_label($event).as_ref().map(tracing::field::display),
            actor = $event.actor,
            operation = $event.operation,
            $($more)*
            $message
        )
    };
}

mod key_label;
mod records;

use key_label::{is_sampled, key_label, non_empty};
use records::log_record_event;

/// Writes one structured log line per event, with `tracing`. The target is `idempotency`.
#[derive(Debug)]
pub struct EventLog {
    backend: &'static str,
    slow_store: Duration,
    slow_wait: Duration,
    debug_percent: u8,
    info_percent: u8,
}

impl EventLog {
    /// Creates the observer.
    #[must_use]
    pub const fn new(config: &TelemetryConfig) -> Self {
        Self {
            backend: config.backend,
            slow_store: config.slow_store,
            slow_wait: config.slow_wait,
            debug_percent: config.debug_percent,
            info_percent: config.requests_percent,
        }
    }

    fn log_request(&self, event: &Event<'_>, how: Ending, took: Duration) {
        if !is_sampled(&event.identity, self.info_percent) {
            return;
        }
        let duration_ms = to_millis(took);
        match how {
            Ending::Ran { bytes } => {
                line!(
                    INFO,
                    event,
                    "idempotency.processed",
                    "request ran",
                    response_size_bytes = bytes,
                    duration_ms,
                );
            }
            Ending::Replayed {
                number,
                requested_at,
            } => {
                line!(
                    INFO,
                    event,
                    "idempotency.replay",
                    "request answered from the record",
                    replay_count = number,
                    original_timestamp = rfc3339_millis(requested_at),
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
            // Errors have lines of their own.
            _ => {
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

    fn log_store_event(&self, event: &Event<'_>) {
        let backend = self.backend;
        match event.step {
            Step::StoreCalled {
                call, took, claim, ..
            } => {
                let (store_call, duration_ms) = (call.as_str(), to_millis(took));
                if took >= self.slow_store {
                    let threshold_ms = to_millis(self.slow_store);
                    line!(
                        WARN,
                        event,
                        "idempotency.storage.slow",
                        "the store was slow",
                        store_call,
                        backend,
                        duration_ms,
                        threshold_ms,
                    );
                } else if let Some(answer) = claim
                    && self.logs_debug(event)
                {
                    line!(
                        DEBUG,
                        event,
                        "idempotency.cache.lookup",
                        "the store was asked",
                        store_call,
                        backend,
                        result = answer.as_str(),
                        storage_duration_ms = duration_ms,
                    );
                }
            }
            Step::StoreFailed {
                call,
                kind,
                certainty,
            } => {
                line!(
                    ERROR,
                    event,
                    "idempotency.storage.error",
                    "the store did not answer",
                    store_call = call.as_str(),
                    backend,
                    error = kind.as_str(),
                    changed = labels::changed(certainty),
                );
            }
            Step::Breaker {
                state: BreakerState::Open,
                failures,
                threshold,
            } => {
                line!(
                    WARN,
                    event,
                    "idempotency.circuit_breaker.opened",
                    "the circuit breaker is open; the store gets no calls",
                    backend,
                    failure_count = failures,
                    threshold,
                );
            }
            Step::Breaker {
                state: BreakerState::HalfOpen,
                ..
            } => {
                line!(
                    INFO,
                    event,
                    "idempotency.circuit_breaker.half_open",
                    "the circuit breaker is half-open; one request probes the store",
                    backend,
                );
            }
            Step::Breaker {
                state: BreakerState::Closed,
                ..
            } => {
                line!(
                    INFO,
                    event,
                    "idempotency.circuit_breaker.closed",
                    "the circuit breaker is closed; the store answers again",
                    backend,
                );
            }
            Step::BreakerRejected if self.logs_debug(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.circuit_breaker.rejected",
                    "the circuit breaker rejected a store call",
                    backend,
                );
            }
            _ => {}
        }
    }

    fn log_wait_event(&self, event: &Event<'_>) {
        match event.step {
            Step::WaitBegan { position } if self.logs_debug(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.lock.attempt",
                    "a request waits for a running one with the same key",
                    queue_position = position,
                );
            }
            Step::WaitEnded { waited, position } if waited >= self.slow_wait => {
                line!(
                    WARN,
                    event,
                    "idempotency.lock.contention",
                    "a request waited long for a running one with the same key",
                    wait_time_ms = to_millis(waited),
                    queue_depth = position,
                );
            }
            Step::Busy {
                why: BusyReason::WaitedTooLong,
                waited,
                limit,
            } => {
                line!(
                    ERROR,
                    event,
                    "idempotency.lock.timeout",
                    "a request timed out while waiting for a running one with the same key",
                    wait_time_ms = to_millis(waited),
                    timeout_ms = to_millis(limit),
                );
            }
            Step::Busy { why, .. } if self.logs_debug(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.busy",
                    "a request was refused because another one with the same key is running",
                    why = why.as_str(),
                );
            }
            _ => {}
        }
    }

    fn logs_debug(&self, event: &Event<'_>) -> bool {
        tracing::enabled!(target: "idempotency", Level::DEBUG)
            && is_sampled(&event.identity, self.debug_percent)
    }
}

impl Observer for EventLog {
    fn observe(&self, event: &Event<'_>) {
        match event.step {
            Step::Answered { how, took, .. } => self.log_request(event, how, took),
            Step::StoreCalled { .. }
            | Step::StoreFailed { .. }
            | Step::Breaker { .. }
            | Step::BreakerRejected => self.log_store_event(event),
            Step::WaitBegan { .. } | Step::WaitEnded { .. } | Step::Busy { .. } => {
                self.log_wait_event(event);
            }
            Step::Refused { code } if self.logs_debug(event) => {
                line!(
                    DEBUG,
                    event,
                    "idempotency.refused",
                    "a request was refused before the store was asked",
                    code = code.as_str(),
                );
            }
            _ => log_record_event(event),
        }
    }
}
