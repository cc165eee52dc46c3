//! `/metrics`, on the admin listener.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header;
use semel::Semel;
use semel_core::Tick;
use semel_core::event::BreakerState;
use semel_core::store::Stats;

use super::meter::Meter;
use super::table as t;
use crate::admin::{Credential, Operator};
use crate::api::Failure;
use crate::audit::Trail;

/// How long an answer of the store is good for: whoever scrapes must not be able to load it.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// How long the store may take: Prometheus waits 10 s by default, and an outage is when it is needed most.
const STORE_LIMIT: Duration = Duration::from_secs(1);

/// When the store was last asked for its size, and what it said.
pub(super) type Size = Option<(Tick, Option<Stats>)>;

/// What is scraped.
#[derive(Clone)]
pub(super) struct Scraped {
    pub(super) meter: Arc<Meter>,
    pub(super) semel: Semel,
    pub(super) trail: Trail,
    pub(super) credential: Credential,
    pub(super) size: Arc<tokio::sync::Mutex<Size>>,
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
        let connections = self.semel.store().connections().unwrap_or_default();
        registry
            .gauge(&t::CONNECTIONS, &of)
            .set(f64::from(connections.active));
        registry
            .counter(&t::EXHAUSTED, &of)
            .absolute(connections.exhausted);
        let stats = self.size().await;
        let up = if stats.is_some() { 1.0 } else { 0.0 };
        registry.gauge(&t::STORE_UP, &of).set(up);
        let records = registry.gauge(&t::STORE_RECORDS, &of);
        if let Some(stats) = stats {
            records.set(stats.records as f64);
        }
    }

    /// How much is in the store; `None` where it doesn't answer.
    async fn size(&self) -> Option<Stats> {
        let clock = &self.semel.engine().env().clock;
        let mut known = self.size.lock().await;
        let now = clock.now();
        if let Some((at, stats)) = *known
            && now.since(at) < GOOD_FOR
        {
            return stats;
        }
        let asked = tokio::time::timeout(STORE_LIMIT, self.semel.store().stats()).await;
        let stats = asked.ok().and_then(Result::ok);
        *known = Some((clock.now(), stats));
        stats
    }
}
