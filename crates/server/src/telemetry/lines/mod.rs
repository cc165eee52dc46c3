//! [`Lines`]: the observer that logs. One line per event, with the names that operators know; a key only as its
//! first characters and the beginning of its hash.

#![expect(
    clippy::cognitive_complexity,
    clippy::too_many_lines,
    reason = "flat tables of one line per event: what is counted is what tracing's macro becomes"
)]

use std::time::Duration;

use semel_core::event::{BreakerState, BusyReason, Ending, Event, Observer, Step, StoreCall};
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

mod records;
mod shown;

use records::of_records;
use shown::{is_chosen, millis, named, shown};

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
            _ => of_records(event),
        }
    }
}
