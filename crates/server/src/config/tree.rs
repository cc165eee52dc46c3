//! [`Config`]: the root of all settings.
//!
//! The doc comments of the settings become the schema, `docs/config.md` and the output of
//! `semel config explain`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::admin::{Admin, Api};
use super::audit::Audit;
use super::engine::{Engine, Keys};
use super::health::Health;
use super::identity::{Credentials, IdentitySettings, Jwt};
use super::jobs::Jobs;
use super::limits::Limits;
use super::listener::Listener;
use super::observability::{Log, Metrics, Traces};
use super::route::{RouteEntry, RouteSettings};
use super::store::Store;
use super::units::{Span, seconds};
use super::upstream::Upstream;

/// All settings of `semel serve`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Semel configuration")]
pub struct Config {
    /// The name of the environment, such as `production`. Environments that share a store keep
    /// their keys apart.
    pub environment: String,
    /// How long running requests may continue after SIGTERM before they are cut off.
    pub drain_time: Span,
    /// The store that keeps the records.
    pub store: Store,
    /// The service that requests are forwarded to.
    pub upstream: Upstream,
    /// The main listener, which accepts requests for the service.
    pub listener: Listener,
    /// Limits on concurrent work and request rates, for the process and for each caller.
    pub limits: Limits,
    /// The admin listener: health, metrics, the admin API and the dashboard.
    pub admin: Admin,
    /// The protocol API, under `listener.own_path`: claim, renew and settle leases by explicit
    /// calls.
    pub api: Api,
    /// The job queue, which enqueues a job once however often it is submitted.
    pub jobs: Jobs,
    /// The audit trail of decisions and of operators' changes.
    pub audit: Audit,
    /// Health probes and the self-check.
    pub health: Health,
    /// The log.
    pub log: Log,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// Traces for OpenTelemetry.
    pub traces: Traces,
    /// Which keys are valid.
    pub keys: Keys,
    /// Settings of the engine that apply to the whole process.
    pub engine: Engine,
    /// How to find the tenant of a request. Each tenant has keys of its own.
    pub tenants: IdentitySettings,
    /// How to find the authenticated caller (principal) of a request. Each principal has keys of
    /// its own. Without principals, the credentials of a request are part of its fingerprint.
    pub principals: IdentitySettings,
    /// What counts as credentials if there are no principals. A key that comes with other
    /// credentials is refused.
    pub credentials: Credentials,
    /// How JSON web tokens are verified, if tenants or principals come from a token.
    pub jwt: Jwt,
    /// The settings of requests that match no route, and the defaults of all routes.
    pub defaults: RouteSettings,
    /// Routes with settings of their own. The first route whose path matches applies.
    pub routes: Vec<RouteEntry>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            environment: String::new(),
            drain_time: seconds(30),
            store: Store::default(),
            upstream: Upstream::default(),
            listener: Listener::default(),
            limits: Limits::default(),
            admin: Admin::default(),
            api: Api::default(),
            jobs: Jobs::default(),
            audit: Audit::default(),
            health: Health::default(),
            log: Log::default(),
            metrics: Metrics::default(),
            traces: Traces::default(),
            keys: Keys::default(),
            engine: Engine::default(),
            tenants: IdentitySettings::new("tenant_id"),
            principals: IdentitySettings::new("sub"),
            credentials: Credentials::default(),
            jwt: Jwt::default(),
            defaults: RouteSettings::default(),
            routes: Vec::new(),
        }
    }
}
