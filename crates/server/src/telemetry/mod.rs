//! Telemetry of a process: metrics, log lines and traces. The observers that count and log are in
//! `semel-telemetry`.
//!
//! | file | is |
//! |---|---|
//! | `scrape`, `cached_probe` | `/metrics`; cached statistics of the store |
//! | [`fields`] | the fields of every audit entry and log line |
//! | `trace` | OpenTelemetry spans |
//! | `page` | `docs/metrics.md` |

mod cached_probe;
pub mod fields;
mod page;
mod scrape;
pub(crate) mod trace;

use std::sync::Arc;

use axum::Router;
use semel::Semel;
use semel_core::event::{Event, Observer};
use semel_jobs::Jobs;
pub use semel_telemetry::table;
use semel_telemetry::{EventLog, Meter, TelemetryConfig};

use crate::audit::Trail;
use crate::config::{Config, MetricsAccess, SettingError};
use crate::limits::Limiter;
use crate::operators::{Credential, SignIns};
pub(crate) use cached_probe::CachedProbe;
pub use page::{fields_page, page};
use trace::{SpanObserver, Tracing};

/// The metrics, log and traces of a process. Clones share them.
#[derive(Clone)]
pub struct ProcessTelemetry {
    meter: Option<Arc<Meter>>,
    event_log: Arc<EventLog>,
    access: MetricsAccess,
    pub(crate) tracing: Option<Tracing>,
}

impl ProcessTelemetry {
    /// Starts the telemetry of a process with a store of this `backend`, on the current runtime.
    ///
    /// # Errors
    /// [`SettingError`] if the endpoint of the traces is unusable.
    pub fn start(config: &Config, backend: &'static str) -> Result<Self, SettingError> {
        let tracing = Tracing::start(&config.traces)
            .map_err(|message| SettingError::url("traces.otlp_endpoint", message))?;
        let access = config.metrics.access;
        let settings = TelemetryConfig::new(backend)
            .with_max_scopes(config.metrics.max_scopes)
            .with_by_tenant(config.metrics.by_tenant)
            .with_slow_store(config.log.slow_store.0)
            .with_slow_wait(config.log.slow_wait.0)
            .with_debug_percent(config.log.debug_percent)
            .with_requests_percent(config.log.requests_percent);
        let is_on = access != MetricsAccess::Off;
        Ok(Self {
            meter: is_on.then(|| Arc::new(Meter::new(&settings))),
            event_log: Arc::new(EventLog::new(&settings)),
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

impl std::fmt::Debug for ProcessTelemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProcessTelemetry({:?})", self.access)
    }
}

impl Observer for ProcessTelemetry {
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
