//! The metric handles of one scope, created once and used without a lookup by name.

use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::PrometheusRecorder;
use semel_core::State;
use semel_core::event::{BusyReason, Ending, VerdictKind};

use crate::labels::{OTHER, outcome};
use crate::table::{self as t, Metric};

/// The labels of outcomes. Other outcomes are counted as the last one.
pub(crate) const OUTCOMES: [&str; 16] = [
    "ran",
    "handed_out",
    "replayed",
    "unprotected",
    "conflict",
    "held",
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

/// Registers the metrics of the table.
pub struct Registry {
    pub(crate) recorder: PrometheusRecorder,
}

/// The key of a metric with its labels, in the order of the table.
fn metric_key(metric: &Metric, labels: &[(&'static str, &str)]) -> Key {
    debug_assert!(
        {
            let is_always_there = |name: &&str| !["tenant", "operation"].contains(name);
            let names = labels.iter().map(|(name, _)| *name).filter(is_always_there);
            names.eq(metric.labels.iter().copied().filter(is_always_there))
        },
        "{}: these are not its labels",
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
    /// A counter with these labels.
    pub fn counter(&self, metric: &Metric, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder
            .register_counter(&metric_key(metric, labels), &METADATA)
    }

    /// A gauge with these labels.
    pub fn gauge(&self, metric: &Metric, labels: &[(&'static str, &str)]) -> metrics::Gauge {
        self.recorder
            .register_gauge(&metric_key(metric, labels), &METADATA)
    }

    pub(crate) fn histogram(&self, metric: &Metric, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder
            .register_histogram(&metric_key(metric, labels), &METADATA)
    }
}

/// The labels of a series: a scope, an operation and, with `metrics.by_tenant`, a tenant.
#[derive(Clone, Debug)]
pub(crate) struct SeriesLabels {
    pub(crate) scope: String,
    pub(crate) operation: String,
    pub(crate) tenant: Option<String>,
}

impl SeriesLabels {
    pub(crate) fn with<'a>(
        &'a self,
        more: &[(&'static str, &'a str)],
    ) -> Vec<(&'static str, &'a str)> {
        let mut labels = vec![("scope", self.scope.as_str())];
        // An empty label is the same as none.
        if !self.operation.is_empty() {
            labels.push(("operation", self.operation.as_str()));
        }
        labels.extend_from_slice(more);
        labels.extend(self.tenant.as_deref().map(|tenant| ("tenant", tenant)));
        labels
    }

    /// The labels of a metric about the store, which has no scope.
    fn of_store<'a>(&'a self, backend: &'a str) -> Vec<(&'static str, &'a str)> {
        let operation = Some(("operation", self.operation.as_str()));
        let mut labels = vec![("backend", backend)];
        labels.extend(operation.filter(|(_, name)| !name.is_empty()));
        labels
    }
}

/// The metrics of one scope.
pub(crate) struct Series {
    pub(crate) labels: SeriesLabels,
    requests: [Counter; OUTCOMES.len()],
    request_seconds: [Histogram; 2],
    replays: [[Counter; 2]; 2],
    claims: [Counter; 2],
    busy: Vec<Counter>,
    effects: Vec<Counter>,
    settled: [Counter; 4],
    pub(crate) wait_seconds: Histogram,
    pub(crate) effect_seconds: Histogram,
    pub(crate) passed: Counter,
    pub(crate) renewed: Counter,
    pub(crate) leases_lost: Counter,
    pub(crate) unrecorded: Counter,
    pub(crate) in_doubt: Counter,
    pub(crate) resolved: Counter,
    pub(crate) unlocked: Counter,
    pub(crate) mismatches: Counter,
    pub(crate) mismatch_retries: Counter,
    pub(crate) held: Counter,
    pub(crate) oversized: Counter,
    pub(crate) deleted: Counter,
    pub(crate) failed_open: Counter,
    pub(crate) breaker_refusals: Counter,
}

impl Series {
    pub(crate) fn new(registry: &Registry, backend: &str, labels: SeriesLabels) -> Self {
        let counter = |metric: &Metric, more: &[(&'static str, &str)]| {
            registry.counter(metric, &labels.with(more))
        };
        let histogram = |metric: &Metric, more: &[(&'static str, &str)]| {
            registry.histogram(metric, &labels.with(more))
        };
        // Starts at zero: a rate over a new series would miss its first value.
        for found in ["done", "not_done", "unknown"] {
            drop(counter(&t::VERIFIED, &[("found", found)]));
        }
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
            busy: BusyReason::ALL
                .iter()
                .map(|why| counter(&t::BUSY, &[("why", why.as_str())]))
                .collect(),
            effects: VerdictKind::ALL
                .iter()
                .map(|verdict| counter(&t::EFFECTS, &[("verdict", verdict.as_str())]))
                .collect(),
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
            held: counter(&t::HELD, &[]),
            oversized: counter(&t::OVERSIZED, &[]),
            deleted: counter(&t::DELETED, &[]),
            failed_open: counter(&t::FAILED_OPEN, &[]),
            breaker_refusals: registry.counter(&t::BREAKER_REFUSALS, &labels.of_store(backend)),
            labels,
        }
    }

    pub(crate) fn request(&self, how: Ending) -> &Counter {
        let word = outcome(how);
        let at = OUTCOMES.iter().position(|known| *known == word);
        &self.requests[at.unwrap_or(OUTCOMES.len() - 1)]
    }

    pub(crate) fn request_seconds(&self, how: Ending) -> &Histogram {
        &self.request_seconds[usize::from(matches!(how, Ending::Replayed { .. }))]
    }

    pub(crate) fn replay(&self, state: State, local: bool) -> &Counter {
        &self.replays[usize::from(state == State::Failed)][usize::from(local)]
    }

    pub(crate) fn claim(&self, attempt: u16) -> &Counter {
        &self.claims[usize::from(attempt > 1)]
    }

    pub(crate) fn busy(&self, why: BusyReason) -> &Counter {
        &self.busy[why.index()]
    }

    pub(crate) fn effect(&self, verdict: VerdictKind) -> &Counter {
        &self.effects[verdict.index()]
    }

    pub(crate) const fn settled(&self, state: State) -> &Counter {
        &self.settled[match state {
            State::Completed => 0,
            State::Failed => 1,
            State::Released => 2,
            _ => 3,
        }]
    }
}

const SETTLED: [&str; 4] = ["completed", "failed", "released", "in_doubt"];
