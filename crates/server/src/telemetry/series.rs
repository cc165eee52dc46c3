//! The handles of one scope's metrics, made once and used without a look-up by name.

use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::PrometheusRecorder;
use semel_core::State;
use semel_core::event::{BusyReason, Ending, VerdictKind};

use super::table::{self as t, Metric};

/// What becomes of names past the bound.
pub(super) const OTHER: &str = "other";

/// The words of outcomes. What isn't a word of these is counted as the last.
pub(super) const OUTCOMES: [&str; 15] = [
    "ran",
    "handed_out",
    "replayed",
    "unprotected",
    "conflict",
    "in_flight",
    "in_doubt",
    "store_unavailable",
    "late",
    "lease_lost",
    "unrecorded",
    "effect_panicked",
    "shut_down",
    "policy",
    OTHER,
];

/// Registers what the table has.
pub(super) struct Registry {
    pub(super) recorder: PrometheusRecorder,
}

/// Labels, in the order of the table.
fn key(metric: &Metric, labels: &[(&'static str, &str)]) -> Key {
    debug_assert!(
        labels
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| *name != "tenant")
            .eq(metric.labels.iter().copied()),
        "{}: not its labels",
        metric.name
    );
    let labels: Vec<Label> = labels
        .iter()
        .map(|(name, value)| Label::new(*name, (*value).to_owned()))
        .collect();
    Key::from_parts(metric.name, labels)
}

const METADATA: Metadata<'static> = Metadata::new("semel", Level::INFO, None);

impl Registry {
    pub(super) fn counter(&self, metric: &Metric, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder
            .register_counter(&key(metric, labels), &METADATA)
    }

    pub(super) fn gauge(&self, metric: &Metric, labels: &[(&'static str, &str)]) -> metrics::Gauge {
        self.recorder
            .register_gauge(&key(metric, labels), &METADATA)
    }

    pub(super) fn histogram(&self, metric: &Metric, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder
            .register_histogram(&key(metric, labels), &METADATA)
    }
}

/// Whose series: a scope and, where it is told apart, a tenant.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) scope: String,
    pub(super) tenant: Option<String>,
}

impl Place {
    pub(super) fn labels<'a>(
        &'a self,
        more: &[(&'static str, &'a str)],
    ) -> Vec<(&'static str, &'a str)> {
        let mut labels = vec![("scope", self.scope.as_str())];
        labels.extend_from_slice(more);
        labels.extend(self.tenant.as_deref().map(|tenant| ("tenant", tenant)));
        labels
    }
}

/// The metrics of one scope.
pub(super) struct Series {
    pub(super) place: Place,
    requests: [Counter; OUTCOMES.len()],
    request_seconds: [Histogram; 2],
    replays: [[Counter; 2]; 2],
    claims: [Counter; 2],
    busy: [Counter; 5],
    effects: [Counter; 6],
    settled: [Counter; 4],
    pub(super) wait_seconds: Histogram,
    pub(super) effect_seconds: Histogram,
    pub(super) passed: Counter,
    pub(super) renewed: Counter,
    pub(super) leases_lost: Counter,
    pub(super) unrecorded: Counter,
    pub(super) in_doubt: Counter,
    pub(super) resolved: Counter,
    pub(super) unlocked: Counter,
    pub(super) mismatches: Counter,
    pub(super) mismatch_retries: Counter,
    pub(super) oversized: Counter,
    pub(super) deleted: Counter,
    pub(super) failed_open: Counter,
}

impl Series {
    pub(super) fn new(registry: &Registry, place: Place) -> Self {
        let counter = |metric: &Metric, more: &[(&'static str, &str)]| {
            registry.counter(metric, &place.labels(more))
        };
        let histogram = |metric: &Metric, more: &[(&'static str, &str)]| {
            registry.histogram(metric, &place.labels(more))
        };
        // At nought from the first: a rate over something that just appeared would miss the first of it.
        for known in ["true", "false"] {
            drop(counter(&t::RECOVERED, &[("known", known)]));
        }
        Self {
            requests: OUTCOMES.map(|outcome| counter(&t::REQUESTS, &[("outcome", outcome)])),
            request_seconds: ["false", "true"]
                .map(|replayed| histogram(&t::REQUEST_SECONDS, &[("replayed", replayed)])),
            replays: ["completed", "failed"].map(|state| {
                ["store", "local"]
                    .map(|source| counter(&t::REPLAYS, &[("state", state), ("source", source)]))
            }),
            claims: ["new", "takeover"].map(|kind| counter(&t::CLAIMS, &[("kind", kind)])),
            busy: BUSY.map(|why| counter(&t::BUSY, &[("why", why)])),
            effects: VERDICTS.map(|verdict| counter(&t::EFFECTS, &[("verdict", verdict)])),
            settled: SETTLED.map(|state| counter(&t::SETTLED, &[("state", state)])),
            wait_seconds: histogram(&t::WAIT_SECONDS, &[]),
            effect_seconds: histogram(&t::EFFECT_SECONDS, &[]),
            passed: counter(&t::PASSED, &[]),
            renewed: counter(&t::RENEWED, &[]),
            leases_lost: counter(&t::LEASES_LOST, &[]),
            unrecorded: counter(&t::UNRECORDED, &[]),
            in_doubt: counter(&t::IN_DOUBT, &[]),
            resolved: counter(&t::RESOLVED, &[]),
            unlocked: counter(&t::UNLOCKED, &[]),
            mismatches: counter(&t::MISMATCHES, &[]),
            mismatch_retries: counter(&t::MISMATCH_RETRIES, &[]),
            oversized: counter(&t::OVERSIZED, &[]),
            deleted: counter(&t::DELETED, &[]),
            failed_open: counter(&t::FAILED_OPEN, &[]),
            place,
        }
    }

    pub(super) fn request(&self, how: Ending) -> &Counter {
        let word = outcome(how);
        let at = OUTCOMES.iter().position(|known| *known == word);
        &self.requests[at.unwrap_or(OUTCOMES.len() - 1)]
    }

    pub(super) fn request_seconds(&self, how: Ending) -> &Histogram {
        &self.request_seconds[usize::from(matches!(how, Ending::Replayed(_)))]
    }

    pub(super) fn replay(&self, state: State, local: bool) -> &Counter {
        &self.replays[usize::from(state == State::Failed)][usize::from(local)]
    }

    pub(super) fn claim(&self, attempt: u16) -> &Counter {
        &self.claims[usize::from(attempt > 1)]
    }

    pub(super) const fn busy(&self, why: BusyReason) -> &Counter {
        &self.busy[match why {
            BusyReason::Policy => 0,
            BusyReason::WaitedTooLong => 1,
            BusyReason::KeyWaiters => 2,
            BusyReason::ProcessWaiters => 3,
            BusyReason::TenantWaiters => 4,
        }]
    }

    pub(super) const fn effect(&self, verdict: VerdictKind) -> &Counter {
        &self.effects[match verdict {
            VerdictKind::Complete => 0,
            VerdictKind::Fail => 1,
            VerdictKind::Retry => 2,
            VerdictKind::NoEffect => 3,
            VerdictKind::Unknown => 4,
            VerdictKind::Panic => 5,
        }]
    }

    pub(super) const fn settled(&self, state: State) -> &Counter {
        &self.settled[match state {
            State::Completed => 0,
            State::Failed => 1,
            State::Released => 2,
            _ => 3,
        }]
    }
}

const BUSY: [&str; 5] = [
    "policy",
    "waited_too_long",
    "key_waiters",
    "process_waiters",
    "tenant_waiters",
];
const VERDICTS: [&str; 6] = ["complete", "fail", "retry", "no_effect", "unknown", "panic"];
const SETTLED: [&str; 4] = ["completed", "failed", "released", "in_doubt"];

/// The word for how a request ended.
pub(super) fn outcome(how: Ending) -> &'static str {
    match how {
        Ending::Ran => "ran",
        Ending::HandedOut => "handed_out",
        Ending::Replayed(_) => "replayed",
        Ending::Unprotected => "unprotected",
        Ending::Problem(code) => code.strip_prefix("idempotency_").unwrap_or(code),
    }
}
