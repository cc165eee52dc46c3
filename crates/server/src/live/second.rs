//! The counters of the current second, and the [`Sample`] of a past one.

use std::time::Duration;

use semel::core::Code;
use semel_core::engine::Engine;
use semel_core::event::{Ending, Step};
use serde::Serialize;
use utoipa::ToSchema;

use super::distribution::{Distribution, Quantiles};
use crate::web::to_millis;

/// The state of the engine at the end of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineSnapshot {
    time_ms: u64,
    running: usize,
    waiting: usize,
    breaker: &'static str,
}

impl EngineSnapshot {
    pub(super) fn from_engine(engine: &Engine) -> Self {
        Self {
            time_ms: engine.env().clock.wall().as_micros() / 1000,
            running: engine.running(),
            waiting: engine.waiting(),
            breaker: engine.breaker().as_str(),
        }
    }
}

/// The event counts of a second.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Tally {
    /// Requests whose effect ran.
    ran: u32,
    /// Requests that got a lease for an effect at the caller.
    handed_out: u32,
    /// Requests that got a stored answer.
    replayed: u32,
    /// Requests refused because the key was used with another payload.
    conflicts: u32,
    /// Calls held because they resemble an earlier one.
    held: u32,
    /// Requests refused because the key was running.
    in_flight: u32,
    /// Requests refused because the key was in doubt.
    in_doubt: u32,
    /// Requests refused because the store did not answer.
    unavailable: u32,
    /// Requests whose effect ran without protection, in observe mode or because the store was down.
    unprotected: u32,
    /// Requests with any other outcome.
    other: u32,
    /// Requests without a key, which passed through.
    passed: u32,
    /// Requests refused before the store was asked, because the key is missing or invalid.
    refused: u32,
    /// Leases taken over from a crashed owner.
    takeovers: u32,
    /// Leases renewed.
    renewals: u32,
    /// Calls to the store.
    store_calls: u32,
    /// Calls that the store did not answer.
    store_errors: u32,
}

/// The statistics of a past second.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Sample {
    /// The number of the second since the start.
    pub(crate) number: u64,
    /// The end of the second: milliseconds since 1970 by the server's wall clock.
    time_ms: u64,
    /// The exact duration that the counts cover.
    span_ms: u64,
    /// The event counts.
    #[serde(flatten)]
    tally: Tally,
    /// Effects that ran in this process at the end of the second.
    running: usize,
    /// Callers that waited for a running key at the end of the second.
    waiting: usize,
    /// The circuit breaker at the end of the second: `closed`, `open` or `half_open`.
    #[schema(value_type = String)]
    breaker: &'static str,
    /// The latency of requests and store calls.
    #[serde(flatten)]
    latency: Latency,
}

/// The latency of requests and store calls; absent if there were none.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Latency {
    /// Requests whose effect ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ran_ms: Option<Quantiles>,
    /// Replayed requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    replayed_ms: Option<Quantiles>,
    /// Calls to the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    store_ms: Option<Quantiles>,
}

/// The distributions of durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distributions {
    ran: Distribution,
    replayed: Distribution,
    store: Distribution,
}

impl Distributions {
    pub(super) fn add(&mut self, other: &Self) {
        self.ran.add(&other.ran);
        self.replayed.add(&other.replayed);
        self.store.add(&other.store);
    }

    pub(super) fn latency(&self) -> Latency {
        Latency {
            ran_ms: self.ran.quantiles(),
            replayed_ms: self.replayed.quantiles(),
            store_ms: self.store.quantiles(),
        }
    }
}

/// The counters of the current second.
#[derive(Debug, Default)]
pub(super) struct Second {
    tally: Tally,
    distributions: Distributions,
}

impl Second {
    pub(super) fn count(&mut self, step: &Step) {
        let tally = &mut self.tally;
        let counter = match *step {
            Step::Answered { how, took, .. } => return self.count_request(how, took),
            Step::StoreCalled { took, answered, .. } => {
                self.distributions.store.record(took);
                tally.store_errors += u32::from(!answered);
                &mut tally.store_calls
            }
            Step::Claimed { attempt, .. } if attempt > 1 => &mut tally.takeovers,
            Step::Renewed { .. } => &mut tally.renewals,
            Step::Passed => &mut tally.passed,
            Step::Refused { .. } => &mut tally.refused,
            _ => return,
        };
        *counter = counter.saturating_add(1);
    }

    fn count_request(&mut self, how: Ending, took: Duration) {
        let tally = &mut self.tally;
        let counter = match how {
            Ending::Ran { .. } => {
                self.distributions.ran.record(took);
                &mut tally.ran
            }
            Ending::Replayed { .. } => {
                self.distributions.replayed.record(took);
                &mut tally.replayed
            }
            Ending::HandedOut => &mut tally.handed_out,
            Ending::Unprotected => &mut tally.unprotected,
            Ending::Problem(Code::Conflict) => &mut tally.conflicts,
            Ending::Problem(Code::Held) => &mut tally.held,
            Ending::Problem(Code::InFlight) => &mut tally.in_flight,
            Ending::Problem(Code::InDoubt) => &mut tally.in_doubt,
            Ending::Problem(Code::StoreUnavailable) => &mut tally.unavailable,
            _ => &mut tally.other,
        };
        *counter = counter.saturating_add(1);
    }

    pub(super) fn close(
        self,
        number: u64,
        span: Duration,
        engine: EngineSnapshot,
    ) -> (Sample, Distributions) {
        let sample = Sample {
            number,
            time_ms: engine.time_ms,
            span_ms: to_millis(span).max(1),
            tally: self.tally,
            running: engine.running,
            waiting: engine.waiting,
            breaker: engine.breaker,
            latency: self.distributions.latency(),
        };
        (sample, self.distributions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: EngineSnapshot = EngineSnapshot {
        time_ms: 7,
        running: 2,
        waiting: 1,
        breaker: "closed",
    };

    fn answered(how: Ending, millis: u64) -> Step {
        let secret = semel_core::Secret::none();
        Step::Answered {
            how,
            fingerprint: semel_core::Fingerprint::builder(&secret).finish(),
            took: Duration::from_millis(millis),
        }
    }

    #[test]
    fn sample_has_the_counts_of_its_second() {
        let mut second = Second::default();
        for _ in 0..3 {
            second.count(&answered(Ending::Ran { bytes: 0 }, 40));
        }
        let replayed = Ending::Replayed {
            number: None,
            requested_at: semel_core::Timestamp::default(),
        };
        second.count(&answered(replayed, 2));
        second.count(&answered(Ending::Problem(Code::Conflict), 1));
        second.count(&answered(Ending::Problem(Code::Held), 1));
        second.count(&answered(Ending::Problem(Code::Late), 1));
        second.count(&Step::Passed);
        let (sample, distributions) = second.close(5, Duration::from_millis(1003), ENGINE);
        let json = serde_json::to_value(&sample).unwrap();
        assert_eq!(
            [
                &json["ran"],
                &json["replayed"],
                &json["conflicts"],
                &json["held"],
                &json["other"],
                &json["passed"]
            ],
            [3, 1, 1, 1, 1, 1]
        );
        assert_eq!(
            [&json["number"], &json["span_ms"], &json["running"]],
            [5, 1003, 2]
        );
        let ran = json["ran_ms"]["p99"].as_f64().unwrap();
        assert!((39.0..41.0).contains(&ran), "{json}");
        assert!(json.get("store_ms").is_none(), "no store call: {json}");

        let mut both = Distributions::default();
        both.add(&distributions);
        both.add(&distributions);
        let replayed = both.latency().replayed_ms.unwrap().p50;
        assert!((1.9..2.1).contains(&replayed), "{replayed}");
    }
}
