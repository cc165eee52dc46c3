//! `/metrics`, on the admin listener.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header;
use semel::Semel;
use semel_core::event::BreakerState;
use semel_core::store::Stats;
use semel_jobs::{Counts, Jobs};

use super::meter::Meter;
use super::seldom::Seldom;
use super::table as t;
use crate::admin::{Credential, Operator};
use crate::api::Failure;
use crate::audit::Trail;
use crate::limits::Limiter;

/// What is scraped.
#[derive(Clone)]
pub(super) struct Scraped {
    pub(super) meter: Arc<Meter>,
    pub(super) semel: Semel,
    pub(super) trail: Trail,
    pub(super) credential: Credential,
    pub(super) size: Seldom<Stats>,
    pub(super) jobs: Option<Jobs>,
    pub(super) depth: Seldom<Counts>,
    pub(super) limiter: Limiter,
}

impl FromRef<Scraped> for Credential {
    fn from_ref(scraped: &Scraped) -> Self {
        scraped.credential.clone()
    }
}

pub(super) fn router(scraped: Scraped, open: bool) -> Router {
    let routes = if open {
        Router::new().route("/metrics", get(to_anybody))
    } else {
        Router::new().route("/metrics", get(to_operators))
    };
    routes.with_state(scraped)
}

async fn to_anybody(State(scraped): State<Scraped>) -> Response {
    scraped.render().await
}

async fn to_operators(State(scraped): State<Scraped>, _: Operator) -> Result<Response, Failure> {
    Ok(scraped.render().await)
}

impl Scraped {
    async fn render(&self) -> Response {
        self.look().await;
        self.look_at_jobs().await;
        self.look_at_limits();
        let headers = [
            (
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            ),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, self.meter.handle.render()).into_response()
    }

    /// What no event tells: how things stand now.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    async fn look(&self) {
        let (engine, registry) = (self.semel.engine(), &self.meter.registry);
        let of = [("backend", self.meter.backend)];
        let state = match engine.breaker() {
            BreakerState::Closed => 0.0,
            BreakerState::Open => 1.0,
            BreakerState::HalfOpen => 2.0,
        };
        registry.gauge(&t::BREAKER, &of).set(state);
        registry
            .gauge(&t::RUNNING, &[])
            .set(engine.running() as f64);
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
        let stats = self.size.now(clock, store.stats()).await;
        let up = if stats.is_some() { 1.0 } else { 0.0 };
        registry.gauge(&t::STORE_UP, &of).set(up);
        let records = registry.gauge(&t::STORE_RECORDS, &of);
        if let Some(stats) = stats {
            records.set(stats.records as f64);
        }
    }

    /// What is taken of the limits.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    fn look_at_limits(&self) {
        let registry = &self.meter.registry;
        for (limit, used, most) in self.limiter.used_with(self.semel.engine().waiting()) {
            let of = [("limit", limit)];
            registry.gauge(&t::LIMIT_USED, &of).set(used as f64);
            registry.gauge(&t::LIMIT_MOST, &of).set(most as f64);
        }
        for (limit, by, count) in self.limiter.refusals() {
            let of = [("limit", limit.as_str()), ("by", by.as_str())];
            registry.counter(&t::LIMITED, &of).absolute(count);
        }
    }

    /// How many jobs there are; the last known while the store is down.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    async fn look_at_jobs(&self) {
        let Some(jobs) = &self.jobs else { return };
        let clock = &*self.semel.engine().env().clock;
        let Some(counts) = self.depth.now(clock, jobs.queue().counts()).await else {
            return;
        };
        let states = [
            ("queued", counts.queued),
            ("running", counts.running),
            ("dead", counts.dead),
            ("damaged", counts.damaged),
        ];
        for (state, count) in states {
            let gauge = self.meter.registry.gauge(&t::JOBS, &[("state", state)]);
            gauge.set(count as f64);
        }
    }
}
