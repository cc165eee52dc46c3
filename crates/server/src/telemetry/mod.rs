//! Seeing what happens: metrics, log lines and traces, all derived from the engine's events.
//!
//! | file | is |
//! |---|---|
//! | [`table`] | every metric; and what the documents that this follows call it |
//! | `meter`, `series` | the observer that counts |
//! | `scrape`, `seldom` | `/metrics`; how much is in the store |
//! | `lines` | the observer that logs |
//! | `trace` | spans for a collector |
//! | `page` | `docs/metrics.md` |

mod lines;
mod meter;
mod page;
mod scrape;
mod seldom;
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

use crate::admin::Credential;
use crate::audit::Trail;
use crate::config::{Config, MetricsAccess};
use crate::limits::Limiter;
use crate::start::StartError;
use lines::Lines;
use meter::Meter;
pub use page::page;
pub(crate) use seldom::Seldom;
use trace::{Spans, Tracing};

/// How often recorded durations are put into their buckets where nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Metrics and log lines of a process. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    meter: Option<Arc<Meter>>,
    lines: Arc<Lines>,
    access: MetricsAccess,
    pub(crate) tracing: Option<Tracing>,
}

impl Telemetry {
    /// What the configuration asks for, of a process whose records are in `backend`. On the runtime that this is
    /// called in.
    ///
    /// # Errors
    /// [`StartError`] where traces can't be sent to where the configuration says.
    pub fn start(config: &Config, backend: &'static str, env: &Env) -> Result<Self, StartError> {
        let tracing = Tracing::start(&config.traces).map_err(|message| StartError::File {
            what: "traces.otlp_endpoint",
            message,
        })?;
        let access = config.metrics.access;
        let meter = match access {
            MetricsAccess::Off => None,
            // Only a histogram without bounds could fail, and the table has none.
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
            lines: Arc::new(Lines::new(&config.log, backend)),
            access,
            tracing,
        })
    }

    /// Sends the traces that are still here: before a process ends.
    pub async fn flush(&self) {
        if let Some(tracing) = &self.tracing {
            tracing.flush().await;
        }
    }

    /// `/metrics`, for whom `metrics.access` lets in.
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
                let scraped = scrape::Scraped {
                    meter: Arc::clone(meter),
                    semel: semel.clone(),
                    trail: trail.clone(),
                    credential,
                    size: Seldom::default(),
                    jobs: jobs.cloned(),
                    depth: Seldom::default(),
                    limiter: limiter.clone(),
                };
                scrape::router(scraped, self.access == MetricsAccess::Open)
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
            Spans.observe(event);
        }
        self.lines.observe(event);
    }
}

/// Tells several, one after the other.
pub(crate) struct Fan(pub(crate) Vec<Arc<dyn Observer>>);

impl Observer for Fan {
    fn observe(&self, event: &Event<'_>) {
        for observer in &self.0 {
            observer.observe(event);
        }
    }

    fn wants_times(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_times())
    }
}
