//! The `/metrics` endpoint for Prometheus, on the admin listener.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header;
use semel::Semel;
use semel_core::event::BreakerState;
use semel_core::store::Stats;
use semel_jobs::{JobCounts, Jobs};
use semel_telemetry::Meter;
use semel_telemetry::table as t;

use super::cached_probe::CachedProbe;
use crate::audit::Trail;
use crate::limits::Limiter;
use crate::operators::{Credential, Operator, SignIns};
use crate::web::Failure;

/// The sources of the metrics.
#[derive(Clone)]
pub(super) struct MetricsState {
    pub(super) meter: Arc<Meter>,
    pub(super) semel: Semel,
    pub(super) trail: Trail,
    pub(super) credential: Credential,
    pub(super) sign_ins: SignIns,
    pub(super) size: CachedProbe<Stats>,
    pub(super) jobs: Option<Jobs>,
    pub(super) depth: CachedProbe<JobCounts>,
    pub(super) limiter: Limiter,
}

impl FromRef<MetricsState> for Credential {
    fn from_ref(state: &MetricsState) -> Self {
        state.credential.clone()
    }
}

impl FromRef<MetricsState> for SignIns {
    fn from_ref(state: &MetricsState) -> Self {
        state.sign_ins.clone()
    }
}

pub(super) fn router(state: MetricsState, open: bool) -> Router {
    let routes = if open {
        Router::new().route("/metrics", get(serve_everybody))
    } else {
        Router::new().route("/metrics", get(serve_operators))
    };
    routes.with_state(state)
}

async fn serve_everybody(State(state): State<MetricsState>) -> Response {
    state.render().await
}

async fn serve_operators(
    State(state): State<MetricsState>,
    _: Operator,
) -> Result<Response, Failure> {
    Ok(state.render().await)
}

impl MetricsState {
    async fn render(&self) -> Response {
        self.update_gauges().await;
        self.update_jobs().await;
        self.update_limits();
        let headers = [
            (
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            ),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, self.meter.render()).into_response()
    }

    /// Updates the gauges of the current state, which no event reports.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus values are floating-point numbers"
    )]
    async fn update_gauges(&self) {
        let (engine, registry) = (self.semel.engine(), self.meter.registry());
        let of = [("backend", self.meter.backend())];
        let breaker = match engine.breaker() {
            BreakerState::Closed => 0.0,
            BreakerState::Open => 1.0,
            BreakerState::HalfOpen => 2.0,
        };
        registry.gauge(&t::BREAKER, &of).set(breaker);
        registry
            .gauge(&t::RUNNING, &[])
            .set(engine.running() as f64);
        registry
            .gauge(&t::OLDEST_RUN, &[])
            .set(engine.oldest_run().unwrap_or_default().as_secs_f64());
        registry
            .gauge(&t::WAITING, &[])
            .set(engine.waiting() as f64);
        registry
            .counter(&t::AUDIT_LOST, &[])
            .absolute(self.trail.lost());
        registry
            .gauge(&t::AUDIT_WAITING, &[])
            .set(self.trail.waiting() as f64);
        for copy in self.trail.copies() {
            let of = [("sink", copy.sink)];
            registry
                .gauge(&t::AUDIT_BEHIND, &of)
                .set(copy.behind_bytes as f64);
            registry.counter(&t::AUDIT_SENT, &of).absolute(copy.sent);
        }
        let connections = self.semel.store().connections().unwrap_or_default();
        registry
            .gauge(&t::CONNECTIONS, &of)
            .set(f64::from(connections.active));
        registry
            .counter(&t::EXHAUSTED, &of)
            .absolute(connections.exhausted);
        let (clock, store) = (&*engine.env().clock, self.semel.store());
        let stats = self.size.get(clock, store.stats()).await;
        let up = if stats.is_some() { 1.0 } else { 0.0 };
        registry.gauge(&t::STORE_UP, &of).set(up);
        let records = registry.gauge(&t::STORE_RECORDS, &of);
        if let Some(stats) = stats {
            records.set(stats.records as f64);
        }
    }

    /// Updates the usage of the limits.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus values are floating-point numbers"
    )]
    fn update_limits(&self) {
        let registry = self.meter.registry();
        for (limit, used, most) in self.limiter.usage(self.semel.engine().waiting()) {
            let of = [("limit", limit)];
            registry.gauge(&t::LIMIT_USED, &of).set(used as f64);
            registry.gauge(&t::LIMIT_MOST, &of).set(most as f64);
        }
        for (limit, by, count) in self.limiter.refusals() {
            let of = [("limit", limit.as_str()), ("by", by.as_str())];
            registry.counter(&t::LIMITED, &of).absolute(count);
        }
    }

    /// Updates the number of jobs. It keeps its last value while the store is down.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus values are floating-point numbers"
    )]
    async fn update_jobs(&self) {
        let Some(jobs) = &self.jobs else { return };
        let clock = &*self.semel.engine().env().clock;
        let Some(counts) = self.depth.get(clock, jobs.queue().counts()).await else {
            return;
        };
        let states = [
            ("queued", counts.queued),
            ("running", counts.running),
            ("dead", counts.dead),
            ("damaged", counts.damaged),
        ];
        for (state, count) in states {
            let gauge = self.meter.registry().gauge(&t::JOBS, &[("state", state)]);
            gauge.set(count as f64);
        }
    }
}
