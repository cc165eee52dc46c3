//! [`Target`]: which admin API a command uses, from flags, environment and settings.

use std::path::{Path, PathBuf};

use clap::Args;
use semel_server::OpenOptions;
use semel_server::admin::{AdminConfig, AdminState, router};
use semel_server::config::{AuditNats, AuditPostgres};
use semel_server::config::{Config, Sources, load, without_password};
use semel_server::operators::Credential;

use super::Client;
use super::link::{Identity, Link};
use crate::exit::{self, Exit};

/// The sidecar or store to work on.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Target")]
pub(crate) struct Target {
    /// The admin listener of a running sidecar.
    #[arg(long, value_name = "URL", env = "SEMEL_ADMIN_URL")]
    admin: Option<String>,
    /// A file with the token of the admin API.
    #[arg(long, value_name = "FILE", env = "SEMEL_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The CA certificates (PEM) to verify the admin listener with.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A client certificate (PEM), if the admin listener asks for one.
    #[arg(long, value_name = "FILE", requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// The private key (PEM) of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// The store itself, without a sidecar: redis://…, postgres://…, mysql://…, sqlite://…, s3://…
    #[arg(long, value_name = "URL", conflicts_with = "admin")]
    pub(crate) store: Option<String>,
    /// The settings file of the sidecar (TOML). Its admin.address is used, else its store.
    #[arg(long, short, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The environment of the keys.
    #[arg(long, value_name = "NAME")]
    pub(crate) environment: Option<String>,
    /// With --store: the audit file for changes (JSON lines). It may be the trail of a running
    /// sidecar.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Whether the job queue is opened, too.
    #[arg(skip)]
    jobs: bool,
}

impl Target {
    /// A store, or the settings that name it.
    pub(crate) fn of_store(
        store: Option<String>,
        config: Option<PathBuf>,
        environment: Option<String>,
    ) -> Self {
        Self {
            store,
            config,
            environment,
            ..Self::default()
        }
    }

    /// Connects for commands about jobs: with --store, the job queue of the store is opened, too.
    pub(crate) async fn client_for_jobs(&self) -> Result<Client, Exit> {
        let mut with_jobs = self.clone();
        with_jobs.jobs = true;
        with_jobs.client().await
    }

    /// Connects to the admin API.
    pub(crate) async fn client(&self) -> Result<Client, Exit> {
        if let (Some(url), None) = (&self.admin, &self.store) {
            return self.remote(url, self.token_file.as_deref());
        }
        if self.store.is_some() {
            return self.local(&self.bare_config()).await;
        }
        let Some(config) = self.settings()? else {
            let message = "no sidecar or store is given\n    fix: --admin http://HOST:PORT for a \
                           running sidecar (or SEMEL_ADMIN_URL), --store URL for the store \
                           itself, or --config FILE";
            return Err(Exit::failed(exit::CONFIG, message));
        };
        match &config.admin.address {
            Some(address) => {
                let scheme = if config.admin.tls.cert_file.is_some() {
                    "https"
                } else {
                    "http"
                };
                let token = config.admin.token_file.as_ref().map(Path::new);
                let token = self.token_file.as_deref().or(token);
                self.remote(&format!("{scheme}://{address}"), token)
            }
            None => self.local(&config).await,
        }
    }

    /// The settings of the sidecar, from a file or the environment.
    pub(crate) fn settings(&self) -> Result<Option<Config>, Exit> {
        let env = environment();
        let says_store = env.iter().any(|(name, _)| name.starts_with("SEMEL_STORE_"));
        if self.config.is_none() && !says_store {
            return Ok(None);
        }
        let sources = Sources {
            file: self.config.clone(),
            env,
            flags: Vec::new(),
        };
        let loaded = load(&sources)
            .map_err(|findings| Exit::from(semel_server::StartError::from(findings)))?;
        Ok(Some(loaded.config))
    }

    /// The settings if only the store is given.
    pub(crate) fn bare_config(&self) -> Config {
        let mut config = Config::default();
        config.store.url.clone_from(&self.store);
        config.environment = self.environment.clone().unwrap_or_default();
        config
    }

    fn remote(&self, url: &str, token_file: Option<&Path>) -> Result<Client, Exit> {
        let identity = Identity {
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
        };
        if token_file.is_some() && is_in_the_clear(url) {
            let message = format!(
                "the token would be sent to {} unencrypted\n    fix: https://, or a tunnel that \
                 ends on 127.0.0.1",
                without_password(url)
            );
            return Err(Exit::failed(exit::CONFIG, message));
        }
        let token = token_file.map(|file| {
            let read = std::fs::read_to_string(file);
            read.map(|text| text.trim().to_owned()).map_err(|error| {
                let message = format!("--token-file {}: {error}", file.display());
                Exit::failed(exit::CONFIG, message)
            })
        });
        Ok(Client {
            link: Link::remote(url, &identity)?,
            token: token.transpose()?,
            name: format!("the admin API at {}", without_password(url)),
            environment: self.environment.clone(),
        })
    }

    async fn local(&self, config: &Config) -> Result<Client, Exit> {
        let mut config = config.clone();
        // Only the sidecar writes the sidecar's own audit file.
        config.audit.file = self
            .audit
            .as_ref()
            .map(|file| file.to_string_lossy().into_owned());
        // The same holds for the copies of the audit trail.
        config.audit.postgres = AuditPostgres::default();
        config.audit.nats = AuditNats::default();
        config.jobs.enabled = self.jobs;
        let opened = OpenOptions::for_tool(&config).open().await?;
        let name = format!("the store ({})", opened.semel.store().capabilities().name);
        let trail = opened.trail.clone();
        let mut state = AdminState::new(
            opened.semel,
            opened.trail,
            Credential::None,
            AdminConfig::default(),
        );
        if let Some(jobs) = opened.jobs {
            state = state.with_jobs(jobs);
        }
        Ok(Client {
            link: Link::Local {
                router: router(state),
                trail,
                kept: self.audit.is_some(),
            },
            token: None,
            name,
            environment: self.environment.clone(),
        })
    }
}

/// The environment variables that may hold settings.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Whether a request to this URL is unencrypted.
fn is_in_the_clear(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback());
    uri.scheme_str() == Some("http") && !is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_need_loopback_or_tls() {
        for safe in [
            "https://host:1",
            "http://127.0.0.1:1",
            "http://localhost:1",
            "http://[::1]:1",
        ] {
            assert!(!is_in_the_clear(safe), "{safe}");
        }
        for clear in [
            "http://host:1",
            "http://192.0.2.1",
            "http://127.0.0.1.evil.test",
        ] {
            assert!(is_in_the_clear(clear), "{clear}");
        }
    }
}
