//! Telemetry: metrics, log lines and traces, derived from the engine's events.
//!
//! | file | is |
//! |---|---|
//! | [`table`] | every metric, and its name in related documents |
//! | `meter`, `series`, `refused_payloads` | the observer that counts |
//! | `scrape`, `cached_probe` | `/metrics`; cached statistics of the store |
//! | `event_log` | the observer that logs |
//! | `trace` | OpenTelemetry spans |
//! | `page` | `docs/metrics.md` |

mod cached_probe;
mod event_log;
pub mod fields;
mod meter;
mod page;
mod refused_payloads;
mod scrape;
mod series;
pub mod table;
pub(crate) mod trace;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use semel::Semel;
use semel_core::Env;
use semel_core::event::{Event, Observer};
use semel_jobs::Jobs;

use crate::audit::Trail;
use crate::config::{Config, MetricsAccess, SettingError};
use crate::limits::Limiter;
use crate::operators::{Credential, SignIns};
pub(crate) use cached_probe::CachedProbe;
use event_log::EventLog;
use meter::Meter;
pub use page::{fields_page, page};
use trace::{SpanObserver, Tracing};

/// How often recorded durations are moved into their buckets, if nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics, log and traces of a process. Clones share them.
#[derive(Clone)]
pub struct Telemetry {
    meter: Option<Arc<Meter>>,
    event_log: Arc<EventLog>,
    access: MetricsAccess,
    pub(crate) tracing: Option<Tracing>,
}

impl Telemetry {
    /// Starts the telemetry of a process with a store of this `backend`, on the current runtime.
    ///
    /// # Errors
    /// [`SettingError`] if the endpoint of the traces is unusable.
    pub fn start(config: &Config, backend: &'static str, env: &Env) -> Result<Self, SettingError> {
        let tracing = Tracing::start(&config.traces)
            .map_err(|message| SettingError::url("traces.otlp_endpoint", message))?;
        let access = config.metrics.access;
        let meter = match access {
            MetricsAccess::Off => None,
            // Only a histogram without buckets could fail, and the table has none.
            _ => Meter::new(&config.metrics, backend).ok().map(Arc::new),
        };
        if let Some(meter) = &meter {
            let (weak, clock) = (Arc::downgrade(meter), Arc::clone(&env.clock));
            env.spawn.spawn(Box::pin(async move {
                loop {
                    clock.sleep(UPKEEP).await;
                    let Some(meter) = weak.upgrade() else { return };
                    meter.handle.run_upkeep();
                }
            }));
        }
        Ok(Self {
            meter,
            event_log: Arc::new(EventLog::new(&config.log, backend)),
            access,
            tracing,
        })
    }

    /// Sends the remaining traces before the process ends.
    pub async fn flush(&self) {
        if let Some(tracing) = &self.tracing {
            tracing.flush().await;
        }
    }

    /// The router of `/metrics`, for the callers that `metrics.access` allows.
    pub fn router(
        &self,
        semel: &Semel,
        trail: &Trail,
        jobs: Option<&Jobs>,
        limiter: &Limiter,
        credential: Credential,
    ) -> Router {
        match &self.meter {
            None => Router::new(),
            Some(meter) => {
                let clock = Arc::clone(&semel.engine().env().clock);
                let state = scrape::MetricsState {
                    sign_ins: SignIns::new(trail.clone(), clock),
                    meter: Arc::clone(meter),
                    semel: semel.clone(),
                    trail: trail.clone(),
                    credential,
                    size: CachedProbe::default(),
                    jobs: jobs.cloned(),
                    depth: CachedProbe::default(),
                    limiter: limiter.clone(),
                };
                scrape::router(state, self.access == MetricsAccess::Open)
            }
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Telemetry({:?})", self.access)
    }
}

impl Observer for Telemetry {
    fn observe(&self, event: &Event<'_>) {
        if let Some(meter) = &self.meter {
            meter.observe(event);
        }
        if self.tracing.is_some() {
            SpanObserver.observe(event);
        }
        self.event_log.observe(event);
    }
}

/// Several observers, which get each event in order.
pub(crate) struct ObserverList(pub(crate) Vec<Arc<dyn Observer>>);

impl Observer for ObserverList {
    fn observe(&self, event: &Event<'_>) {
        for observer in &self.0 {
            observer.observe(event);
        }
    }

    fn wants_events(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_events())
    }

    fn wants_times(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_times())
    }
}
