//! What has to be there before the process can serve: the store, the trail, what else is served; and what can be wrong
//! with it.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use semel::core::event::{Ignore, Observer};
use semel::core::{Clock, Env};
use semel::{OpenError, Secret, Semel, tokio_env};
use semel_jobs::Jobs;

use crate::admin::{AdminConfig, AdminState, Credential, Operators};
use crate::api::{Access, AccessError, ApiConfig, ApiState, Tokens};
use crate::audit::{Trail, TrailConfig};
use crate::config::{ApiAccess, Config, Findings, without_password};
use crate::jobs::{JobsState, Reaper};
use crate::limits::Limiter;
use crate::live::Live;
use crate::stack::{StackError, engine_config};
use crate::telemetry::trace::{Carrying, Tracing};
use crate::telemetry::{Fan, Telemetry};
use crate::tls::TlsError;

/// What else is served: other modules' routers.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// On the main listener, under `listener.own_path`.
    pub main: Router,
    /// The queue of jobs, on the main listener.
    pub jobs: Option<Router>,
    /// On the admin listener. Checks its callers itself.
    pub admin: Router,
    /// Who is told of the requests of the main listener.
    pub(crate) tracing: Option<Tracing>,
    /// What counts what is taken; one of its own, where there is none.
    pub(crate) limiter: Option<Limiter>,
}

/// A store that is open, and the trail of what happens on it.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The store, and the engine on it.
    pub semel: Semel,
    /// What happens.
    pub trail: Trail,
    /// What is counted and logged of it.
    pub telemetry: Telemetry,
    /// The figures of the last minutes, for the dashboard.
    pub live: Live,
    /// The queue of jobs, where there is one.
    pub jobs: Option<Jobs>,
    /// What is taken of the limits.
    pub limiter: Limiter,
}

impl Opened {
    /// The protocol API and the admin API, as the configuration has them.
    ///
    /// # Errors
    /// [`StartError`] where a token can't be used.
    pub fn mounts(&self, config: &Config) -> Result<Mounts, StartError> {
        let access = api_access(config)?;
        let jobs = self.jobs.clone().zip(access.clone()).map(|(jobs, access)| {
            let (rules, env) = (self.semel.key_rules(), self.semel.engine().env());
            let state = JobsState::new(jobs, access, rules.clone(), env.clone());
            crate::jobs::router(state.with_limits(&config.limits))
        });
        let main = match access {
            None => Router::new(),
            Some(access) => {
                let state = ApiState::new(self.semel.clone(), access, ApiConfig::default());
                crate::api::bare_router(state)
            }
        };
        let (semel, trail) = (self.semel.clone(), self.trail.clone());
        let credential = credential(config, &self.semel.engine().env().clock)?;
        let jobs_here = self.jobs.as_ref();
        // Figures tell nothing of any answer.
        let for_metrics = match &credential {
            Credential::Closed => Credential::None,
            other => other.clone(),
        };
        let limiter = &self.limiter;
        let metrics = (self.telemetry).router(&semel, &trail, jobs_here, limiter, for_metrics);
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

/// Who may call the protocol API; `None` where nobody may.
fn api_access(config: &Config) -> Result<Option<Access>, StartError> {
    let file = match (config.api.access, &config.api.tokens_file) {
        (ApiAccess::Off, _) => return Ok(None),
        (ApiAccess::Loopback, _) | (ApiAccess::Tokens, None) => return Ok(Some(Access::Open)),
        (ApiAccess::Tokens, Some(file)) => file,
    };
    let broken = |message: String| StartError::File {
        what: "api.tokens_file",
        message,
    };
    let text = std::fs::read_to_string(file).map_err(|error| broken(format!("{file}: {error}")))?;
    let mut tokens = Tokens::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (tenant, token) = line.rsplit_once(char::is_whitespace).unwrap_or(("", line));
        let added = tokens.add(tenant.trim(), token);
        added.map_err(|error: AccessError| {
            broken(format!("{file}, line {}: {error}", number + 1))
        })?;
    }
    Ok(Some(Access::Tokens(tokens)))
}

/// What a caller of the admin API has to show.
fn credential(config: &Config, clock: &Arc<dyn Clock>) -> Result<Credential, StartError> {
    let admin = &config.admin;
    let broken = |what: &'static str, message: String| StartError::File { what, message };
    if let Some(file) = &admin.operators_file {
        let operators = Operators::open(Path::new(file), Arc::clone(clock));
        return match operators {
            Ok(operators) => Ok(Credential::Operators(operators)),
            Err(error) => Err(broken("admin.operators_file", format!("{file}: {error}"))),
        };
    }
    if let Some(file) = &admin.token_file {
        return Credential::token_file(Path::new(file))
            .map_err(|error| broken("admin.token_file", error.to_string()));
    }
    let asks_for_certificates = admin.tls.client_ca_file.is_some() && !admin.tls.client_optional;
    Ok(match (asks_for_certificates, admin.open) {
        (true, _) => Credential::MutualTls(admin.allowed_names.clone().into()),
        (false, true) => Credential::None,
        (false, false) => Credential::Closed,
    })
}

/// Opens the store that the configuration names, with a trail of what happens on it, counted and logged.
///
/// # Errors
/// [`StartError`] says what is wrong and what to do.
pub async fn open_audited(config: &Config) -> Result<Opened, StartError> {
    open_as(Who::Node, config).await
}

/// The same for a tool that looks after records and serves nobody: see [`Builder::tool`](semel::Builder::tool).
///
/// # Errors
/// [`StartError`] says what is wrong and what to do.
pub async fn open_for_tool(config: &Config) -> Result<Opened, StartError> {
    open_as(Who::Tool, config).await
}

/// Who opens a store.
#[derive(Clone, Copy)]
enum Who {
    Node,
    Tool,
}

async fn open_as(who: Who, config: &Config) -> Result<Opened, StartError> {
    let env = tokio_env();
    let sink = crate::audit::open(&config.audit, &env)?;
    let trail = Trail::start(sink, TrailConfig::default(), env.clone());
    let telemetry = Telemetry::start(config, backend(&store_url(config)?), &env)?;
    let live = Live::default();
    let mut told: Vec<Arc<dyn Observer>> =
        vec![Arc::new(trail.clone()), Arc::new(telemetry.clone())];
    if config.admin.dashboard && config.admin.address.is_some() {
        told.push(Arc::new(live.clone()));
    }
    let told = Fan(told);
    let env = match telemetry.tracing {
        None => env,
        Some(_) => Env {
            spawn: Arc::new(Carrying(env.spawn)),
            ..env
        },
    };
    let semel = open_observed(who, config, env, Arc::new(told)).await?;
    let jobs = match config.jobs.enabled {
        false => None,
        true => {
            let jobs = crate::jobs::open(&config.jobs, &semel).await?;
            Reaper::start(&jobs, &semel, config.jobs.reap_every.0);
            Some(jobs)
        }
    };
    Ok(Opened {
        semel,
        trail,
        telemetry,
        live,
        jobs,
        limiter: Limiter::new(&config.limits),
    })
}

/// Why the process can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Findings),
    /// A file that the configuration names can't be used.
    #[error("{what}: {message}\n    fix: check the file")]
    File {
        /// Which setting.
        what: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The settings can't be put to work.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// TLS can't be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The store can't be used.
    #[error("the store {url} can't be used: {source}\n    fix: {fix}")]
    Store {
        /// Without its password.
        url: String,
        /// What to do.
        fix: &'static str,
        /// Why.
        source: Box<OpenError>,
    },
    /// There can be no queue of jobs.
    #[error("jobs: {0}\n    fix: see docs/jobs.md, or leave out jobs.enabled")]
    Jobs(#[from] semel_jobs::Error),
    /// The address can't be listened on.
    #[error("{setting}: {address} can't be listened on: {source}\n    fix: {fix}")]
    Listen {
        /// Which setting.
        setting: &'static str,
        /// The address.
        address: String,
        /// What to do.
        fix: String,
        /// Why.
        source: std::io::Error,
    },
    /// The self-check failed.
    #[error(
        "the self-check failed: {0}\n    fix: look at the store; or set health.self_check = \"warn\" to start all the same"
    )]
    SelfCheck(String),
}

/// Opens the store that the configuration names, for a tool, and without a trail.
///
/// # Errors
/// [`StartError`] says what is wrong and what to do.
pub async fn open(config: &Config) -> Result<Semel, StartError> {
    open_observed(Who::Tool, config, tokio_env(), Arc::new(Ignore)).await
}

async fn open_observed(
    who: Who,
    config: &Config,
    env: Env,
    observer: Arc<dyn Observer>,
) -> Result<Semel, StartError> {
    let url = store_url(config)?;
    let mut builder = Semel::builder()
        .environment(&config.environment)
        .policy(crate::stack::policy(&config.defaults))
        .engine_config(engine_config(config))
        .key_rules(crate::stack::key_rules(config))
        .env(env)
        .observer(observer);
    if let Who::Tool = who {
        builder = builder.tool();
    }
    if let Some(file) = &config.store.secret_file {
        let broken = |message: String| StartError::File {
            what: "store.secret_file",
            message,
        };
        let bytes = std::fs::read(file).map_err(|error| broken(format!("{file}: {error}")))?;
        let id = config.store.secret_id.unwrap_or(1);
        let secret =
            Secret::new(id, bytes.trim_ascii_end()).map_err(|error| broken(error.to_string()))?;
        builder = builder.secret(secret);
    }
    if let Some(bucket) = &config.store.body_store {
        builder = builder.body_store(bucket, config.store.body_store_above.bytes());
    }
    builder.open(&url).await.map_err(|source| StartError::Store {
        url: without_password(&url),
        fix: match source {
            OpenError::Store(_) => {
                "start it, or name another: --store redis://HOST:PORT, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, sqlite:///PATH, or memory:// to try things out"
            }
            OpenError::Bodies(_) => "start its server, or leave store.body_store out: answers are then kept in the store",
            OpenError::Canary(_) => "give every node the same store.secret_file; commands need it too: --config FILE instead of --store",
            _ => "see docs/stores for what a store's URL may say",
        },
        source: Box::new(source),
    })
}

/// What a store at this URL calls itself.
fn backend(url: &str) -> &'static str {
    match url.split([':', '+']).next() {
        Some("redis" | "rediss") => "redis",
        Some("mysql" | "mariadb") => "mysql",
        Some("postgres" | "postgresql") => "postgres",
        Some("sqlite") => "sqlite",
        Some("s3" | "gs" | "az") => "object",
        _ => "memory",
    }
}

fn store_url(config: &Config) -> Result<String, StartError> {
    let store = &config.store;
    match (&store.url, &store.url_file) {
        (Some(url), _) => Ok(url.clone()),
        (None, Some(file)) => match std::fs::read_to_string(file) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(StartError::File {
                what: "store.url_file",
                message: format!("{file}: {error}"),
            }),
        },
        (None, None) => Ok("memory://".to_owned()),
    }
}
