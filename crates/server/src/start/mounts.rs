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
use crate::web::{Access, AccessError, Tokens};

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
        let access = read_api_access(config)?;
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
fn read_api_access(config: &Config) -> Result<Option<Access>, StartError> {
    let file = match (config.api.access, &config.api.tokens_file) {
        (ApiAccess::Off, _) => return Ok(None),
        (ApiAccess::Loopback, _) | (ApiAccess::Tokens, None) => return Ok(Some(Access::Open)),
        (ApiAccess::Tokens, Some(file)) => file,
    };
    let unusable = |message: String| SettingError::file("api.tokens_file", message);
    let text =
        std::fs::read_to_string(file).map_err(|error| unusable(format!("{file}: {error}")))?;
    let mut tokens = Tokens::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |error: &dyn std::fmt::Display| {
            unusable(format!("{file}, line {}: {error}", number + 1))
        };
        // A line of one word is refused: it may be a tenant whose token is missing.
        let Some((tenant, token)) = line.rsplit_once(char::is_whitespace) else {
            return Err(at(&"write a tenant and a token, or - and a token").into());
        };
        let tenant = if tenant.trim() == "-" {
            ""
        } else {
            tenant.trim()
        };
        tokens
            .add(tenant, token)
            .map_err(|error: AccessError| at(&error))?;
    }
    Ok(Some(Access::Tokens(tokens)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn access(lines: &str) -> Result<Option<Access>, String> {
        let name = format!("semel-tokens-{}-{}", std::process::id(), lines.len());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, lines).expect("a file");
        let mut config = Config::default();
        config.api.access = ApiAccess::Tokens;
        config.api.tokens_file = Some(file.display().to_string());
        let access = read_api_access(&config).map_err(|error| error.to_string());
        std::fs::remove_file(file).expect("our file");
        access
    }

    /// A tenant whose token was forgotten must not become a token for no tenant.
    #[test]
    fn a_line_of_one_word_is_no_token() {
        let read = access("# tenant token\nacme the-token-of-acme-1\n- a-token-without-tenant\n");
        assert!(matches!(read, Ok(Some(Access::Tokens(_)))), "{read:?}");
        let message = access("acme the-token-of-acme-1\na-long-tenant-name\n").unwrap_err();
        assert!(message.contains("line 2"), "{message}");
    }
}
