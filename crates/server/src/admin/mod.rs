//! The admin API: for operators, on a listener of its own. The command line and the dashboard use it.
//!
//! It reads and changes records by [`semel_core::engine`] and the store's operator's side; it decides nothing.
//! Every change names who makes it and why, and is in the audit trail before it is made. `docs/admin.md` is the guide.

mod access;
mod changes;
mod events;
mod jobs;
mod live;
mod operators;
mod records;
mod upkeep;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use semel::Semel;
use semel_core::Tick;
use semel_core::store::Stats;
use semel_jobs::Counts;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use access::Operator;
pub use access::{AdminToken, Credential, check_exposure};
pub use operators::{Operators, OperatorsError, Role, new_token};

use crate::api::{Intake, with_fallbacks, wrong_method};
use crate::audit::Trail;
use crate::limits::Limiter;
use crate::live::Live;
use crate::telemetry::Seldom;

/// The bounds of the admin API.
#[derive(Clone, Copy, Debug)]
pub struct AdminConfig {
    /// The largest request taken. 2 MiB.
    pub max_request_bytes: usize,
    /// How long a request's body may take to arrive. 30 s.
    pub patience: Duration,
    /// The most live streams at once. 32.
    pub max_streams: usize,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            max_request_bytes: 2 * 1024 * 1024,
            patience: Duration::from_secs(30),
            max_streams: 32,
        }
    }
}

/// What the admin API is made of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    semel: Semel,
    trail: Trail,
    credential: Credential,
    config: AdminConfig,
    streams: Arc<Semaphore>,
    started: Tick,
    live: Live,
    jobs: Option<semel_jobs::Jobs>,
    size: Seldom<Stats>,
    depth: Seldom<Counts>,
    limiter: Option<Limiter>,
}

impl AdminState {
    /// The API on `semel`, whose observer `trail` should be, for whom `credential` lets in.
    #[must_use]
    pub fn new(semel: Semel, trail: Trail, credential: Credential, config: AdminConfig) -> Self {
        let started = semel.engine().env().clock.now();
        Self {
            semel,
            trail,
            credential,
            config,
            streams: events::places(config.max_streams),
            started,
            live: Live::default(),
            jobs: None,
            size: Seldom::default(),
            depth: Seldom::default(),
            limiter: None,
        }
    }

    /// With the figures of the last minutes, which otherwise are empty. `live` should be an observer of the engine.
    #[must_use]
    pub fn with_live(mut self, live: Live) -> Self {
        self.live = live;
        self
    }

    /// With what is taken of the limits, which otherwise isn't known.
    #[must_use]
    pub fn with_limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// With the queue of jobs, which otherwise isn't there.
    #[must_use]
    pub fn with_jobs(mut self, jobs: semel_jobs::Jobs) -> Self {
        self.jobs = Some(jobs);
        self
    }
}

impl FromRef<AdminState> for Credential {
    fn from_ref(state: &AdminState) -> Self {
        state.credential.clone()
    }
}

impl FromRef<AdminState> for Intake {
    fn from_ref(state: &AdminState) -> Self {
        Self {
            max_bytes: state.config.max_request_bytes,
            patience: state.config.patience,
            env: state.semel.engine().env().clone(),
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(records::list))
        .routes(routes!(records::inspect))
        .routes(routes!(records::history))
        .routes(routes!(records::lookup))
        .routes(routes!(changes::unlock))
        .routes(routes!(changes::resolve))
        .routes(routes!(changes::reset))
        .routes(routes!(upkeep::erase))
        .routes(routes!(upkeep::purge))
        .routes(routes!(upkeep::stats))
        .routes(routes!(live::live))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::inspect))
        .routes(routes!(jobs::retry))
        .routes(routes!(events::events))
}

/// The API as a router, to be mounted on any listener. Check the address first: [`check_exposure`].
pub fn router(state: AdminState) -> Router {
    with_fallbacks(bare_router(state))
}

/// The same without an answer for other paths, to be merged into a larger router.
pub fn bare_router(state: AdminState) -> Router {
    Router::from(routes())
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}
