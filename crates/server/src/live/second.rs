//! One second: counted while it runs, a [`Sample`] when it is over.

use std::time::Duration;

use hdrhistogram::Histogram;
use semel_core::engine::Engine;
use semel_core::event::{Ending, Step};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::millis;
use crate::audit::words;

/// The longest span that is told apart; longer ones count as this.
const LONGEST_MICROS: u64 = 120_000_000;

/// How things stand as a second ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    time_ms: u64,
    running: usize,
    waiting: usize,
    breaker: &'static str,
}

impl Now {
    pub(super) fn of(engine: &Engine) -> Self {
        Self {
            time_ms: engine.env().clock.wall().as_micros() / 1000,
            running: engine.running(),
            waiting: engine.waiting(),
            breaker: words::breaker(engine.breaker()),
        }
    }
}

/// How often what happened in a second.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Tally {
    /// Requests whose effect ran.
    ran: u32,
    /// Requests that were given a lease for an effect elsewhere.
    handed_out: u32,
    /// Requests that were answered from a record.
    replayed: u32,
    /// Requests refused because the key came with another payload.
    conflicts: u32,
    /// Requests refused because another was running.
    in_flight: u32,
    /// Requests refused because the outcome of an earlier one is not known.
    in_doubt: u32,
    /// Requests refused because the store gave no answer.
    unavailable: u32,
    /// Requests whose effect ran unprotected: observed only, or the store was down and the scope says to go on.
    unprotected: u32,
    /// Requests that ended in any other way.
    other: u32,
    /// Requests without a key, which passed untouched.
    passed: u32,
    /// Requests refused at the door: no key, or one that can't be used.
    refused: u32,
    /// Leases won from an owner that vanished.
    takeovers: u32,
    /// Leases renewed.
    renewals: u32,
    /// Calls to the store.
    store_calls: u32,
    /// Calls that the store didn't answer.
    store_errors: u32,
}

/// A second that is over.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Sample {
    /// Counts the seconds since the start.
    pub(crate) number: u64,
    /// When it ended: milliseconds since 1970 on the server's wall clock.
    time_ms: u64,
    /// How long it was: counts are of this span.
    span_ms: u64,
    /// What happened in it.
    #[serde(flatten)]
    tally: Tally,
    /// Effects running in this process as it ended.
    running: usize,
    /// Callers waiting for another's run as it ended.
    waiting: usize,
    /// The breaker as it ended: `closed`, `open` or `half_open`.
    #[schema(value_type = String)]
    breaker: &'static str,
    /// How long requests and store calls took.
    #[serde(flatten)]
    latency: Latency,
}

/// How long requests and store calls took; absent where there were none.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Latency {
    /// Of requests whose effect ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ran_ms: Option<Quantiles>,
    /// Of requests that were replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    replayed_ms: Option<Quantiles>,
    /// Of calls to the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    store_ms: Option<Quantiles>,
}

/// Milliseconds, to about one part in a hundred.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Quantiles {
    /// Half were no slower.
    p50: f64,
    /// Ninety-five in a hundred were no slower.
    p95: f64,
    /// Ninety-nine in a hundred were no slower.
    p99: f64,
}

/// How long things took, as distributions; `None` where nothing did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    ran: Distribution,
    replayed: Distribution,
    store: Distribution,
}

#[derive(Clone, Debug, Default)]
struct Distribution(Option<Histogram<u32>>);

impl Distribution {
    fn record(&mut self, took: Duration) {
        if self.0.is_none() {
            // The bounds are constants that fit.
            self.0 = Histogram::new_with_bounds(1, LONGEST_MICROS, 2).ok();
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(LONGEST_MICROS);
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(micros.clamp(1, LONGEST_MICROS));
        }
    }

    fn add(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (None, some) => self.0.clone_from(some),
            // Both have the same bounds.
            (Some(ours), Some(theirs)) => drop(ours.add(theirs)),
        }
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let histogram = self.0.as_ref()?;
        let at = |quantile| {
            let micros = u32::try_from(histogram.value_at_quantile(quantile)).unwrap_or(u32::MAX);
            f64::from(micros) / 1000.0
        };
        Some(Quantiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
        })
    }
}

impl Spans {
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

/// The second that runs.
#[derive(Debug, Default)]
pub(super) struct Second {
    tally: Tally,
    spans: Spans,
}

impl Second {
    pub(super) fn count(&mut self, step: &Step) {
        let tally = &mut self.tally;
        let counter = match *step {
            Step::Answered { how, took, .. } => return self.answered(how, took),
            Step::StoreCalled { took, answered, .. } => {
                self.spans.store.record(took);
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

    fn answered(&mut self, how: Ending, took: Duration) {
        let tally = &mut self.tally;
        let counter = match how {
            Ending::Ran => {
                self.spans.ran.record(took);
                &mut tally.ran
            }
            Ending::Replayed(_) => {
                self.spans.replayed.record(took);
                &mut tally.replayed
            }
            Ending::HandedOut => &mut tally.handed_out,
            Ending::Unprotected => &mut tally.unprotected,
            Ending::Problem("idempotency_conflict") => &mut tally.conflicts,
            Ending::Problem("idempotency_in_flight") => &mut tally.in_flight,
            Ending::Problem("idempotency_in_doubt") => &mut tally.in_doubt,
            Ending::Problem("idempotency_store_unavailable") => &mut tally.unavailable,
            Ending::Problem(_) => &mut tally.other,
        };
        *counter = counter.saturating_add(1);
    }

    pub(super) fn close(self, number: u64, span: Duration, now: Now) -> (Sample, Spans) {
        let sample = Sample {
            number,
            time_ms: now.time_ms,
            span_ms: millis(span).max(1),
            tally: self.tally,
            running: now.running,
            waiting: now.waiting,
            breaker: now.breaker,
            latency: self.spans.latency(),
        };
        (sample, self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
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
    fn a_second_says_what_happened_in_it() {
        let mut second = Second::default();
        for _ in 0..3 {
            second.count(&answered(Ending::Ran, 40));
        }
        second.count(&answered(Ending::Replayed(None), 2));
        second.count(&answered(Ending::Problem("idempotency_conflict"), 1));
        second.count(&answered(Ending::Problem("idempotency_late"), 1));
        second.count(&Step::Passed);
        let (sample, spans) = second.close(5, Duration::from_millis(1003), NOW);
        let said = serde_json::to_value(&sample).unwrap();
        assert_eq!(
            [
                &said["ran"],
                &said["replayed"],
                &said["conflicts"],
                &said["other"],
                &said["passed"]
            ],
            [3, 1, 1, 1, 1]
        );
        assert_eq!(
            [&said["number"], &said["span_ms"], &said["running"]],
            [5, 1003, 2]
        );
        let ran = said["ran_ms"]["p99"].as_f64().unwrap();
        assert!((39.0..41.0).contains(&ran), "{said}");
        assert!(said.get("store_ms").is_none(), "nothing was asked: {said}");

        let mut both = Spans::default();
        both.add(&spans);
        both.add(&spans);
        let replayed = both.latency().replayed_ms.unwrap().p50;
        assert!((1.9..2.1).contains(&replayed), "{replayed}");
    }

    #[test]
    fn spans_out_of_bounds_count_as_the_bound() {
        let mut distribution = Distribution::default();
        distribution.record(Duration::ZERO);
        distribution.record(Duration::from_secs(100_000));
        let quantiles = distribution.quantiles().unwrap();
        assert!(
            quantiles.p50 < 0.01 && quantiles.p99 >= 119_000.0,
            "{quantiles:?}"
        );
    }
}
