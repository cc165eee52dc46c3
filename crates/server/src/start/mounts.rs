//! [`Mounts`]: the routers of the APIs, and the credentials that protect them.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use semel::core::Clock;

use super::{Services, StartError};
use crate::admin::{AdminConfig, AdminState};
use crate::api::{ApiConfig, ApiState};
use crate::config::{ApiAccess, Config, SettingError};
use crate::jobs::JobsState;
use crate::limits::Limiter;
use crate::operators::{Credential, Operators};
use crate::telemetry::trace::Tracing;
use crate::web::{Access, Tokens};

/// The routers that the listeners serve besides the proxy.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// On the main listener, under `listener.own_path`.
    pub main: Router,
    /// The jobs API, on the main listener.
    pub jobs: Option<Router>,
    /// On the admin listener. The router authenticates its callers.
    pub admin: Router,
    /// Traces of the requests of the main listener.
    pub(crate) tracing: Option<Tracing>,
    /// The limiter; the server makes one if there is none.
    pub(crate) limiter: Option<Limiter>,
}

impl Services {
    /// The routers of the APIs that the configuration enables.
    ///
    /// # Errors
    /// [`StartError`] if a token is invalid.
    pub fn mounts(&self, config: &Config) -> Result<Mounts, StartError> {
        let access = read_api_access(config, &self.semel.engine().env().clock)?;
        let jobs = self.jobs.clone().zip(access.clone()).map(|(jobs, access)| {
            let (rules, env) = (self.semel.key_rules(), self.semel.engine().env());
            let state = JobsState::new(jobs, access, rules.clone(), env.clone());
            crate::jobs::router(state.with_limits(&config.limits, &config.jobs))
        });
        let main = match access {
            None => Router::new(),
            Some(access) => {
                let state = ApiState::new(self.semel.clone(), access, ApiConfig::default());
                crate::api::bare_router(state)
            }
        };
        let (semel, trail) = (self.semel.clone(), self.trail.clone());
        let credential = read_credential(config, &self.semel.engine().env().clock)?;
        let queue = self.jobs.as_ref();
        // Metrics reveal no responses, so they stay open if the admin API is closed.
        let for_metrics = match &credential {
            Credential::Closed => Credential::None,
            other => other.clone(),
        };
        let limiter = &self.limiter;
        let metrics = (self.telemetry).router(&semel, &trail, queue, limiter, for_metrics);
        let mut others = metrics;
        if config.admin.dashboard && config.admin.address.is_some() {
            self.live.watch(&semel);
            others = others.merge(crate::ui::router(&credential));
        }
        let state = AdminState::new(semel, trail, credential, AdminConfig::default());
        let mut state = state
            .with_live(self.live.clone())
            .with_limiter(self.limiter.clone());
        if let Some(jobs) = &self.jobs {
            state = state.with_jobs(jobs.clone());
        }
        let admin = crate::admin::bare_router(state).merge(others);
        let tracing = self.telemetry.tracing.clone();
        Ok(Mounts {
            main,
            jobs,
            admin,
            tracing,
            limiter: Some(self.limiter.clone()),
        })
    }
}

/// The access rule of the protocol API; `None` if it is disabled.
fn read_api_access(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Access>, SettingError> {
    let file = match (config.api.access, &config.api.tokens_file) {
        (ApiAccess::Off, _) => return Ok(None),
        (ApiAccess::Loopback, _) => return Ok(Some(Access::Open)),
        (ApiAccess::Tokens, None) => {
            let message = "api.access is \"tokens\", and no tokens file is set".to_owned();
            return Err(SettingError::file("api.tokens_file", message));
        }
        (ApiAccess::Tokens, Some(file)) => file,
    };
    match Tokens::open(Path::new(file), Arc::clone(clock)) {
        Ok(tokens) => Ok(Some(Access::Tokens(tokens))),
        Err(error) => Err(SettingError::file(
            "api.tokens_file",
            format!("{file}: {error}"),
        )),
    }
}

/// The credential of the admin API.
fn read_credential(config: &Config, clock: &Arc<dyn Clock>) -> Result<Credential, SettingError> {
    let admin = &config.admin;
    let unusable = SettingError::file;
    if let Some(file) = &admin.operators_file {
        let operators = Operators::open(Path::new(file), Arc::clone(clock));
        return match operators {
            Ok(operators) => Ok(Credential::Operators(operators)),
            Err(error) => Err(unusable("admin.operators_file", format!("{file}: {error}"))),
        };
    }
    if let Some(file) = &admin.token_file {
        return Credential::token_file(Path::new(file))
            .map_err(|error| unusable("admin.token_file", error.to_string()));
    }
    let asks_for_certificates = admin.tls.client_ca_file.is_some() && !admin.tls.client_optional;
    Ok(match (asks_for_certificates, admin.open) {
        (true, _) => Credential::MutualTls(admin.allowed_names.clone().into()),
        (false, true) => Credential::None,
        (false, false) => Credential::Closed,
    })
}
