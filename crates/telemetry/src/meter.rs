//! [`Meter`]: the observer that derives metrics from events of the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::{Counter, Histogram, Recorder as _};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use semel_core::event::{BreakerState, Ending, Event, Observer, Step, StoreCall};
use semel_core::{Code, Fingerprint};

use crate::TelemetryConfig;
use crate::labels::OTHER;
use crate::refused_payloads::RefusedPayloads;
use crate::series::{Registry, Series, SeriesLabels};
use crate::table::{self as t, MetricKind};
use crate::upkeep::Upkeep;

/// The maximum length of a label value that a caller may choose.
const MAX_LABEL_BYTES: usize = 128;

/// Derives Prometheus metrics from events. [`table::ALL`](t::ALL) lists them.
pub struct Meter {
    registry: Registry,
    durations: Upkeep,
    backend: &'static str,
    series: ArcSwap<HashMap<String, Arc<Series>>>,
    max_scopes: usize,
    by_tenant: bool,
    calls: Vec<StoreCallMetrics>,
    breaker: [Counter; 3],
    refused: RefusedPayloads,
}

/// The metrics of one kind of store call.
struct StoreCallMetrics {
    answered: Counter,
    failed: Counter,
    seconds: Histogram,
}

impl Meter {
    /// Creates the observer, with its metrics at zero.
    #[must_use]
    pub fn new(config: &TelemetryConfig) -> Self {
        let backend = config.backend;
        let recorder = builder().build_recorder();
        for metric in t::ALL {
            let (name, help) = (metric.name.into(), metric.help.into());
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, None, help),
                MetricKind::Gauge => recorder.describe_gauge(name, None, help),
                MetricKind::Histogram => recorder.describe_histogram(name, None, help),
            }
        }
        let handle = recorder.handle();
        let registry = Registry { recorder };
        let of = [("backend", backend)];
        // Starts at zero, before a claim names its operation.
        drop(registry.counter(&t::BREAKER_REFUSALS, &of));
        registry
            .gauge(&t::BUILD, &[("version", env!("CARGO_PKG_VERSION"))])
            .set(1.0);
        Self {
            calls: StoreCall::ALL
                .iter()
                .map(|call| StoreCallMetrics::new(&registry, backend, call.as_str()))
                .collect(),
            breaker: [
                BreakerState::Closed,
                BreakerState::Open,
                BreakerState::HalfOpen,
            ]
            .map(|state| {
                let labels = [of[0], ("state", state.as_str())];
                registry.counter(&t::BREAKER_CHANGES, &labels)
            }),
            durations: Upkeep::new(handle),
            registry,
            backend,
            series: ArcSwap::default(),
            max_scopes: config.max_scopes,
            by_tenant: config.by_tenant,
            refused: RefusedPayloads::default(),
        }
    }

    /// All metrics in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        self.durations.render()
    }

    /// Where other metrics of [`table`](crate::table) are set.
    #[doc(hidden)]
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The kind of store, a label of the store's metrics.
    #[doc(hidden)]
    #[must_use]
    pub const fn backend(&self) -> &'static str {
        self.backend
    }

    /// The series of an event's scope and operation, created if it is new.
    fn series(&self, event: &Event<'_>) -> Arc<Series> {
        let (scope, tenant) = (event.namespace.scope(), event.namespace.tenant());
        let operation = event.operation.unwrap_or_default();
        let known = self.series.load();
        let found = if self.by_tenant || !operation.is_empty() {
            known.get(&self.series_name(scope, operation, tenant))
        } else {
            known.get(scope)
        };
        match found {
            Some(series) => Arc::clone(series),
            None => self.create_series(scope, operation, tenant),
        }
    }

    fn series_name(&self, scope: &str, operation: &str, tenant: &str) -> String {
        match (self.by_tenant, operation) {
            (true, _) => format!("{tenant}\0{operation}\0{scope}"),
            (false, "") => scope.to_owned(),
            (false, _) => format!("{operation}\0{scope}"),
        }
    }

    #[cold]
    fn create_series(&self, scope: &str, operation: &str, tenant: &str) -> Arc<Series> {
        let mut name = self.series_name(scope, operation, tenant);
        let mut labels = SeriesLabels {
            scope: scope.to_owned(),
            operation: operation.to_owned(),
            tenant: self.by_tenant.then(|| tenant.to_owned()),
        };
        let mut texts = [scope, operation, tenant].into_iter();
        let too_long = texts.any(|text| text.len() > MAX_LABEL_BYTES);
        if self.series.load().len() >= self.max_scopes || too_long {
            // One series over the limit, for all other scopes.
            name = String::new();
            labels = SeriesLabels {
                scope: OTHER.to_owned(),
                operation: OTHER.to_owned(),
                tenant: self.by_tenant.then(|| OTHER.to_owned()),
            };
        }
        if let Some(series) = self.series.load().get(&name) {
            return Arc::clone(series);
        }
        // Handles of the same name share a counter, so a race is harmless.
        let series = Arc::new(Series::new(&self.registry, self.backend, labels));
        self.series.rcu(|known| {
            let mut known = HashMap::clone(known);
            known
                .entry(name.clone())
                .or_insert_with(|| Arc::clone(&series));
            known
        });
        series
    }

    fn record_request(
        &self,
        series: &Series,
        how: Ending,
        fingerprint: Fingerprint,
        took: Duration,
    ) {
        series.request(how).increment(1);
        self.durations.record(series.request_seconds(how), took);
        match how {
            Ending::Problem(Code::Conflict) => self.refused.insert(fingerprint),
            Ending::Ran { .. } | Ending::HandedOut if self.refused.take(fingerprint) => {
                series.mismatch_retries.increment(1);
            }
            _ => {}
        }
    }

    fn record_store_event(&self, event: &Event<'_>) -> bool {
        match event.step {
            Step::StoreCalled {
                call,
                took,
                answered,
                ..
            } => {
                let calls = &self.calls[call.index()];
                let counter = if answered {
                    &calls.answered
                } else {
                    &calls.failed
                };
                counter.increment(1);
                self.durations.record(&calls.seconds, took);
            }
            Step::StoreFailed { call, kind, .. } => {
                let labels = [
                    ("backend", self.backend),
                    ("call", call.as_str()),
                    ("kind", kind.as_str()),
                ];
                self.registry
                    .counter(&t::STORE_ERRORS, &labels)
                    .increment(1);
            }
            Step::Breaker { state, .. } => {
                let at = match state {
                    BreakerState::Closed => 0,
                    BreakerState::Open => 1,
                    BreakerState::HalfOpen => 2,
                };
                self.breaker[at].increment(1);
            }
            _ => return false,
        }
        true
    }

    fn record_rare_event(&self, series: &Series, step: &Step) {
        match *step {
            Step::Recovered { known, .. } => {
                let known = if known { "true" } else { "false" };
                let labels = series.labels.with(&[("known", known)]);
                self.registry.counter(&t::RECOVERED, &labels).increment(1);
            }
            Step::Verified { found, .. } => {
                let labels = series.labels.with(&[("found", found.as_str())]);
                self.registry.counter(&t::VERIFIED, &labels).increment(1);
            }
            Step::Observed { ref decision } => {
                let labels = series.labels.with(&[("would", decision.as_str())]);
                self.registry.counter(&t::OBSERVED, &labels).increment(1);
            }
            Step::Refused { code } => {
                let labels = series.labels.with(&[("code", code.as_str())]);
                self.registry.counter(&t::REFUSED, &labels).increment(1);
            }
            Step::Resolved { .. } => series.resolved.increment(1),
            Step::Unlocked { .. } => series.unlocked.increment(1),
            Step::BreakerRejected => series.breaker_refusals.increment(1),
            Step::Deleted => series.deleted.increment(1),
            Step::FailedOpen => series.failed_open.increment(1),
            Step::Oversized { .. } => series.oversized.increment(1),
            Step::LeaseLost { .. } => series.leases_lost.increment(1),
            Step::Unrecorded { .. } => series.unrecorded.increment(1),
            Step::InDoubt { .. } => series.in_doubt.increment(1),
            Step::Held { .. } => series.held.increment(1),
            _ => {}
        }
    }
}

impl Observer for Meter {
    fn observe(&self, event: &Event<'_>) {
        if self.record_store_event(event) {
            return;
        }
        let series = self.series(event);
        match event.step {
            Step::Answered {
                how,
                fingerprint,
                took,
            } => self.record_request(&series, how, fingerprint, took),
            Step::Claimed { attempt, .. } => series.claim(attempt).increment(1),
            Step::Replayed { state, local, .. } => series.replay(state, local).increment(1),
            Step::Mismatched { .. } => series.mismatches.increment(1),
            Step::WaitEnded { waited, .. } => {
                self.durations.record(&series.wait_seconds, waited);
            }
            Step::Busy { why, .. } => series.busy(why).increment(1),
            Step::EffectEnded { verdict, took } => {
                series.effect(verdict).increment(1);
                self.durations.record(&series.effect_seconds, took);
            }
            Step::Renewed { .. } => series.renewed.increment(1),
            Step::Settled { state, .. } => series.settled(state).increment(1),
            Step::Passed => series.passed.increment(1),
            ref other => self.record_rare_event(&series, other),
        }
    }
}

impl StoreCallMetrics {
    fn new(registry: &Registry, backend: &'static str, call: &'static str) -> Self {
        let of = [("backend", backend), ("call", call)];
        let with = |status| [of[0], of[1], ("status", status)];
        // Starts at zero, like all series. Other kinds appear with their first error.
        drop(registry.counter(&t::STORE_ERRORS, &[of[0], of[1], ("kind", "unavailable")]));
        Self {
            answered: registry.counter(&t::STORE_CALLS, &with("success")),
            failed: registry.counter(&t::STORE_CALLS, &with("error")),
            seconds: registry.histogram(&t::STORE_SECONDS, &of),
        }
    }
}

/// The buckets of every histogram.
fn builder() -> PrometheusBuilder {
    let histograms = t::ALL.iter();
    let histograms = histograms.filter(|metric| metric.kind == MetricKind::Histogram);
    histograms.fold(PrometheusBuilder::new(), |builder, metric| {
        let name = Matcher::Full(metric.name.to_owned());
        // It refuses an empty list only, which a test of the table rules out.
        let with_buckets = builder.set_buckets_for_metric(name, metric.buckets);
        with_buckets.unwrap_or_else(|_| PrometheusBuilder::new())
    })
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meter({})", self.backend)
    }
}

#[cfg(test)]
mod tests {
    use semel_core::event::StoreCall;
    use semel_core::key::KeyHint;
    use semel_core::{Identity, Namespace};

    use super::*;

    /// Lookups and renewals are store calls without a request.
    #[test]
    fn each_store_call_counts_towards_the_upkeep() {
        let meter = Meter::new(&TelemetryConfig::new("memory"));
        let namespace = Namespace::new("", "", "charge").unwrap();
        let step = Step::StoreCalled {
            call: StoreCall::Read,
            took: Duration::from_millis(1),
            answered: true,
            claim: None,
        };
        let nobody = Identity::from_bytes([0; 32]);
        let event = Event::new(&namespace, KeyHint::default(), nobody, step);
        for _ in 0..10 {
            meter.observe(&event);
        }
        assert_eq!(meter.durations.recorded(), 10);
    }
}
