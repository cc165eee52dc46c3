//! The admin API for operators, on its own listener. The command line and the dashboard use it.
//!
//! It reads and changes records through [`semel_core::engine`] and the admin side of the store.
//! Every change names its author and its reason, and is in the audit trail before it is made.
//! `docs/admin.md` is the guide.

mod audited_change;
mod changes;
mod data_erasure;
mod events;
mod history;
mod jobs;
mod live;
mod lookup;
mod maintenance;
mod records;
mod stats;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use semel::Semel;
use semel_core::Tick;
use semel_core::store::Stats;
use semel_jobs::JobCounts;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::audit::Trail;
use crate::limits::Limiter;
use crate::live::Live;
use crate::operators::{Credential, SignIns};
use crate::telemetry::CachedProbe;
use crate::web::{BodyLimits, method_not_allowed, with_fallbacks};

/// The limits of the admin API.
#[derive(Clone, Copy, Debug)]
pub struct AdminConfig {
    /// The largest accepted request. Default: 2 MiB.
    pub max_request_bytes: usize,
    /// How long a request's body may take to arrive. Default: 30 s.
    pub body_timeout: Duration,
    /// The maximum number of concurrent event streams. Default: 32.
    pub max_streams: usize,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            max_request_bytes: 2 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            max_streams: 32,
        }
    }
}

/// The state of the admin API. Clones share it.
#[derive(Clone, Debug)]
pub struct AdminState {
    semel: Semel,
    trail: Trail,
    credential: Credential,
    sign_ins: SignIns,
    config: AdminConfig,
    streams: Arc<Semaphore>,
    started: Tick,
    live: Live,
    jobs: Option<semel_jobs::Jobs>,
    size: CachedProbe<Stats>,
    depth: CachedProbe<JobCounts>,
    limiter: Option<Limiter>,
}

impl AdminState {
    /// The state of an API on `semel`. `trail` must be an observer of its engine.
    #[must_use]
    pub fn new(semel: Semel, trail: Trail, credential: Credential, config: AdminConfig) -> Self {
        let clock = &semel.engine().env().clock;
        let started = clock.now();
        let sign_ins = SignIns::new(trail.clone(), Arc::clone(clock));
        Self {
            semel,
            trail,
            credential,
            sign_ins,
            config,
            streams: events::stream_slots(config.max_streams),
            started,
            live: Live::default(),
            jobs: None,
            size: CachedProbe::default(),
            depth: CachedProbe::default(),
            limiter: None,
        }
    }

    /// Adds the statistics of the last minutes. `live` must be an observer of the engine.
    #[must_use]
    pub fn with_live(mut self, live: Live) -> Self {
        self.live = live;
        self
    }

    /// Adds the usage of the limits.
    #[must_use]
    pub fn with_limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Adds the job queue.
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

impl FromRef<AdminState> for SignIns {
    fn from_ref(state: &AdminState) -> Self {
        state.sign_ins.clone()
    }
}

impl FromRef<AdminState> for BodyLimits {
    fn from_ref(state: &AdminState) -> Self {
        Self {
            max_bytes: state.config.max_request_bytes,
            timeout: state.config.body_timeout,
            env: state.semel.engine().env().clone(),
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(records::list))
        .routes(routes!(records::inspect))
        .routes(routes!(history::history))
        .routes(routes!(lookup::lookup))
        .routes(routes!(changes::unlock))
        .routes(routes!(changes::resolve))
        .routes(routes!(changes::reset))
        .routes(routes!(maintenance::erase))
        .routes(routes!(data_erasure::erase))
        .routes(routes!(maintenance::purge))
        .routes(routes!(stats::stats))
        .routes(routes!(live::live))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::inspect))
        .routes(routes!(jobs::retry))
        .routes(routes!(events::events))
}

/// The router of the API. Check the address of its listener:
/// [`check_exposure`](crate::operators::check_exposure).
pub fn router(state: AdminState) -> Router {
    with_fallbacks(bare_router(state))
}

/// The router without a fallback for unknown paths, to merge into a larger one.
pub fn bare_router(state: AdminState) -> Router {
    Router::from(routes())
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}
