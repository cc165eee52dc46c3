//! [`Meter`]: the observer that derives metrics from the engine's events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::{Counter, Histogram, Recorder as _};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;
use semel_core::Fingerprint;
use semel_core::event::{BreakerState, Ending, Event, Observer, Step, StoreCall};

use super::series::{OTHER, Place, Registry, Series};
use super::table::{self as t, Kind};
use crate::audit::words;
use crate::config;

/// Payloads that were refused under a used key and may come again under another: so many are remembered.
const REFUSED: usize = 1024;

/// The longest label value that a caller may have chosen.
const LONGEST: usize = 128;

/// Derives metrics from events.
pub(super) struct Meter {
    pub(super) registry: Registry,
    pub(super) handle: PrometheusHandle,
    pub(super) backend: &'static str,
    series: ArcSwap<HashMap<String, Arc<Series>>>,
    max_scopes: usize,
    by_tenant: bool,
    calls: [Calls; CALLS.len()],
    breaker: [Counter; 3],
    not_asked: Counter,
    refused: Refused,
}

/// One kind of store call.
struct Calls {
    answered: Counter,
    failed: Counter,
    seconds: Histogram,
}

const CALLS: [StoreCall; 5] = [
    StoreCall::Claim,
    StoreCall::Renew,
    StoreCall::Settle,
    StoreCall::Resolve,
    StoreCall::Read,
];

const fn place_of(call: StoreCall) -> usize {
    match call {
        StoreCall::Claim => 0,
        StoreCall::Renew => 1,
        StoreCall::Settle => 2,
        StoreCall::Resolve => 3,
        StoreCall::Read => 4,
    }
}

impl Meter {
    pub(super) fn new(config: &config::Metrics, backend: &'static str) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for metric in t::ALL
            .iter()
            .filter(|metric| metric.kind == Kind::Histogram)
        {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, metric.buckets)?;
        }
        let recorder = builder.build_recorder();
        for metric in t::ALL {
            let (name, help) = (metric.name.into(), metric.help.into());
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, help),
                Kind::Gauge => recorder.describe_gauge(name, None, help),
                Kind::Histogram => recorder.describe_histogram(name, None, help),
            }
        }
        let handle = recorder.handle();
        let registry = Registry { recorder };
        let of = [("backend", backend)];
        registry
            .gauge(&t::BUILD, &[("version", env!("CARGO_PKG_VERSION"))])
            .set(1.0);
        Ok(Self {
            calls: CALLS.map(|call| Calls::new(&registry, backend, words::store_call(call))),
            breaker: [
                BreakerState::Closed,
                BreakerState::Open,
                BreakerState::HalfOpen,
            ]
            .map(|state| {
                let labels = [of[0], ("state", words::breaker(state))];
                registry.counter(&t::BREAKER_CHANGES, &labels)
            }),
            not_asked: registry.counter(&t::NOT_ASKED, &of),
            handle,
            registry,
            backend,
            series: ArcSwap::default(),
            max_scopes: config.max_scopes,
            by_tenant: config.by_tenant,
            refused: Refused::default(),
        })
    }

    /// The series of an event's scope, made where it is new.
    fn series(&self, event: &Event<'_>) -> Arc<Series> {
        let (scope, tenant) = (event.namespace.scope(), event.namespace.tenant());
        let known = self.series.load();
        let found = if self.by_tenant {
            known.get(&format!("{tenant}\0{scope}"))
        } else {
            known.get(scope)
        };
        match found {
            Some(series) => Arc::clone(series),
            None => self.new_series(scope, tenant),
        }
    }

    #[cold]
    fn new_series(&self, scope: &str, tenant: &str) -> Arc<Series> {
        let mut name = if self.by_tenant {
            format!("{tenant}\0{scope}")
        } else {
            scope.to_owned()
        };
        let mut place = Place {
            scope: scope.to_owned(),
            tenant: self.by_tenant.then(|| tenant.to_owned()),
        };
        let too_long = scope.len() > LONGEST || tenant.len() > LONGEST;
        if self.series.load().len() >= self.max_scopes || too_long {
            // One more than the bound, for all that is over it.
            name = String::new();
            place = Place {
                scope: OTHER.to_owned(),
                tenant: self.by_tenant.then(|| OTHER.to_owned()),
            };
        }
        if let Some(series) = self.series.load().get(&name) {
            return Arc::clone(series);
        }
        // Handles of one name count together, so two that are made at once do no harm.
        let series = Arc::new(Series::new(&self.registry, place));
        self.series.rcu(|known| {
            let mut known = HashMap::clone(known);
            known
                .entry(name.clone())
                .or_insert_with(|| Arc::clone(&series));
            known
        });
        series
    }

    fn answered(&self, series: &Series, how: Ending, fingerprint: Fingerprint, took: Duration) {
        series.request(how).increment(1);
        series.request_seconds(how).record(took);
        match how {
            Ending::Problem("idempotency_conflict") => self.refused.remember(fingerprint),
            Ending::Ran | Ending::HandedOut if self.refused.recalls(fingerprint) => {
                series.mismatch_retries.increment(1);
            }
            _ => {}
        }
    }

    fn of_store(&self, event: &Event<'_>) -> bool {
        match event.step {
            Step::StoreCalled {
                call,
                took,
                answered,
            } => {
                let calls = &self.calls[place_of(call)];
                let counter = if answered {
                    &calls.answered
                } else {
                    &calls.failed
                };
                counter.increment(1);
                calls.seconds.record(took);
            }
            Step::StoreFailed { call, kind, .. } => {
                let labels = [
                    ("backend", self.backend),
                    ("call", words::store_call(call)),
                    ("kind", kind.as_str()),
                ];
                self.registry
                    .counter(&t::STORE_ERRORS, &labels)
                    .increment(1);
            }
            Step::Breaker { state } => {
                let at = match state {
                    BreakerState::Closed => 0,
                    BreakerState::Open => 1,
                    BreakerState::HalfOpen => 2,
                };
                self.breaker[at].increment(1);
            }
            Step::NotAsked => self.not_asked.increment(1),
            _ => return false,
        }
        true
    }

    fn of_operators(&self, series: &Series, step: &Step) {
        match *step {
            Step::Recovered { known, .. } => {
                let known = if known { "true" } else { "false" };
                let labels = series.place.labels(&[("known", known)]);
                self.registry.counter(&t::RECOVERED, &labels).increment(1);
            }
            Step::Observed { ref would } => {
                let labels = series.place.labels(&[("would", words::would(would))]);
                self.registry.counter(&t::OBSERVED, &labels).increment(1);
            }
            Step::Refused { code } => {
                let labels = series.place.labels(&[("code", code)]);
                self.registry.counter(&t::REFUSED, &labels).increment(1);
            }
            Step::Resolved { .. } => series.resolved.increment(1),
            Step::Unlocked { .. } => series.unlocked.increment(1),
            Step::Deleted => series.deleted.increment(1),
            Step::FailedOpen => series.failed_open.increment(1),
            Step::Oversized { .. } => series.oversized.increment(1),
            Step::LeaseLost { .. } => series.leases_lost.increment(1),
            Step::Unrecorded { .. } => series.unrecorded.increment(1),
            Step::InDoubt { .. } => series.in_doubt.increment(1),
            _ => {}
        }
    }
}

impl Observer for Meter {
    fn observe(&self, event: &Event<'_>) {
        if self.of_store(event) {
            return;
        }
        let series = self.series(event);
        match event.step {
            Step::Answered {
                how,
                fingerprint,
                took,
            } => self.answered(&series, how, fingerprint, took),
            Step::Claimed { attempt, .. } => series.claim(attempt).increment(1),
            Step::Replayed { state, local, .. } => series.replay(state, local).increment(1),
            Step::Mismatched => series.mismatches.increment(1),
            Step::WaitEnded { waited } => series.wait_seconds.record(waited),
            Step::Busy { why } => series.busy(why).increment(1),
            Step::EffectEnded { verdict, took } => {
                series.effect(verdict).increment(1);
                series.effect_seconds.record(took);
            }
            Step::Renewed { .. } => series.renewed.increment(1),
            Step::Settled { state, .. } => series.settled(state).increment(1),
            Step::Passed => series.passed.increment(1),
            ref other => self.of_operators(&series, other),
        }
    }
}

impl Calls {
    fn new(registry: &Registry, backend: &'static str, call: &'static str) -> Self {
        let of = [("backend", backend), ("call", call)];
        let with = |status| [of[0], of[1], ("status", status)];
        // At nought from the first, as with all series; other kinds appear when they do.
        drop(registry.counter(&t::STORE_ERRORS, &[of[0], of[1], ("kind", "unavailable")]));
        Self {
            answered: registry.counter(&t::STORE_CALLS, &with("success")),
            failed: registry.counter(&t::STORE_CALLS, &with("error")),
            seconds: registry.histogram(&t::STORE_SECONDS, &of),
        }
    }
}

/// The last payloads that were refused.
#[derive(Default)]
struct Refused {
    // So that those without a mismatch in sight take no lock.
    any: AtomicBool,
    last: Mutex<(VecDeque<Fingerprint>, HashSet<Fingerprint>)>,
}

impl Refused {
    fn remember(&self, fingerprint: Fingerprint) {
        let (order, known) = &mut *self.last.lock();
        if !known.insert(fingerprint) {
            return;
        }
        order.push_back(fingerprint);
        if order.len() > REFUSED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether it was refused; each is told once.
    fn recalls(&self, fingerprint: Fingerprint) -> bool {
        self.any.load(Ordering::Relaxed) && self.last.lock().1.remove(&fingerprint)
    }
}
