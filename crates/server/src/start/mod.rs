//! Opening the store and the services around it: audit trail, telemetry, job queue.
//!
//! | file | is |
//! |---|---|
//! | `mounts` | the routers of the APIs, and their credentials |
//! | `encryption` | the encryption keys, at start and at a reload |
//! | `error` | why the process cannot start |

mod encryption;
mod error;
mod mounts;

use std::sync::Arc;

use semel::core::Env;
use semel::core::event::{NoopObserver, Observer, ObserverList};
use semel::{Encryption, OpenError, Secret, Semel, StoreScheme, tokio_env};
use semel_jobs::Jobs;

use crate::audit::{Trail, TrailConfig};
use crate::config::{Config, SettingError, without_password};
use crate::jobs::Reaper;
use crate::limits::Limiter;
use crate::live::Live;
use crate::stack::{engine_config, key_rules};
use crate::telemetry::ProcessTelemetry;
use crate::telemetry::trace::TracedSpawn;
pub use encryption::{load_keys, new_encryption_key, reload_keys};
pub use error::StartError;
pub use mounts::Mounts;

/// The services of a process: the open store, and everything that observes or extends it.
#[derive(Clone, Debug)]
pub struct Services {
    /// The store and its engine.
    pub semel: Semel,
    /// The audit trail.
    pub trail: Trail,
    /// Metrics, log and traces.
    pub telemetry: ProcessTelemetry,
    /// The statistics of the last minutes, for the dashboard.
    pub live: Live,
    /// The job queue, if it is enabled.
    pub jobs: Option<Jobs>,
    /// The limits of the process.
    pub limiter: Limiter,
}

/// How to open the store of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions<'a> {
    config: &'a Config,
    is_tool: bool,
}

impl<'a> OpenOptions<'a> {
    /// For a process that serves requests.
    #[must_use]
    pub const fn for_node(config: &'a Config) -> Self {
        Self {
            config,
            is_tool: false,
        }
    }

    /// For a tool that manages records: see [`Builder::tool`](semel::Builder::tool).
    #[must_use]
    pub const fn for_tool(config: &'a Config) -> Self {
        Self {
            config,
            is_tool: true,
        }
    }

    /// Opens the store with its audit trail, telemetry and job queue.
    ///
    /// # Errors
    /// [`StartError`] has the cause and a fix.
    pub async fn open(self) -> Result<Services, StartError> {
        let config = self.config;
        let env = tokio_env();
        let sink = crate::audit::open(&config.audit, &env)?;
        let trail = Trail::start(sink, TrailConfig::default(), env.clone());
        let telemetry = ProcessTelemetry::start(config, backend_name(&store_url(config)?))?;
        let live = Live::default();
        let mut observers: Vec<Arc<dyn Observer>> =
            vec![Arc::new(trail.clone()), Arc::new(telemetry.clone())];
        if config.admin.dashboard && config.admin.address.is_some() {
            observers.push(Arc::new(live.clone()));
        }
        let observers = Arc::new(ObserverList::new(observers));
        let env = match telemetry.tracing {
            None => env,
            Some(_) => {
                let spawn = Arc::new(TracedSpawn(Arc::clone(&env.spawn)));
                env.with_spawn(spawn)
            }
        };
        let semel = self.open_observed(env, observers).await?;
        let jobs = match config.jobs.enabled {
            false => None,
            true => {
                let jobs = crate::jobs::open(&config.jobs, &semel).await?;
                Reaper::start(&jobs, &semel, config.jobs.reap_every.0);
                Some(jobs)
            }
        };
        Ok(Services {
            semel,
            trail,
            telemetry,
            live,
            jobs,
            limiter: Limiter::new(&config.limits),
        })
    }

    /// Opens the store alone, without an audit trail.
    ///
    /// # Errors
    /// [`StartError`] has the cause and a fix.
    pub async fn open_store(self) -> Result<Semel, StartError> {
        self.open_observed(tokio_env(), Arc::new(NoopObserver))
            .await
    }

    async fn open_observed(
        self,
        env: Env,
        observer: Arc<dyn Observer>,
    ) -> Result<Semel, StartError> {
        let config = self.config;
        let url = store_url(config)?;
        let mut builder = Semel::builder()
            .environment(&config.environment)
            .policy(config.defaults.policy())
            .engine_config(engine_config(config))
            .key_rules(key_rules(config))
            .compress_answers(config.store.compress)
            .env(env)
            .observer(observer);
        if self.is_tool {
            builder = builder.tool();
        }
        if let Some(file) = &config.store.secret_file {
            let unusable = |message: String| SettingError::file("store.secret_file", message);
            let bytes =
                std::fs::read(file).map_err(|error| unusable(format!("{file}: {error}")))?;
            let id = config.store.secret_id.unwrap_or(1);
            let secret = Secret::new(id, bytes.trim_ascii_end())
                .map_err(|error| unusable(error.to_string()))?;
            builder = builder.secret(secret);
        }
        let encryption = &config.store.encryption;
        if let Some(keys) = encryption::load(encryption).await? {
            let encryption = Encryption::new(keys)
                .refuse_plain(encryption.refuse_plain)
                .data_keys(encryption::data_key_use(encryption))
                .data_key_cache(encryption.data_key_cache.0);
            builder = builder.encryption(encryption);
        }
        if let Some(bucket) = &config.store.body_store {
            builder = builder.body_store(bucket, config.store.body_store_above.bytes());
        }
        builder
            .open(&url)
            .await
            .map_err(|source| StartError::Store {
                url: without_password(&url),
                fix: match source {
                    OpenError::Store(_) => {
                        "start the store, or set another one: --store redis://HOST:PORT, \
                     postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, sqlite:///PATH, or \
                     memory:// for experiments"
                    }
                    OpenError::Bodies(_) => {
                        "start its server, or remove store.body_store to keep \
                    large responses in the store"
                    }
                    OpenError::Encryption(_) => {
                        "give every node the same store.encryption keys; commands \
                    need them too, so use --config FILE instead of --store"
                    }
                    OpenError::Canary(_) => {
                        "give every node the same store.secret_file; commands need \
                    it too, so use --config FILE instead of --store"
                    }
                    _ => "see docs/stores for the URLs of stores",
                },
                source: Box::new(source),
            })
    }
}

/// The name of the backend of a store URL, for metrics and log.
fn backend_name(url: &str) -> &'static str {
    StoreScheme::of_url(url)
        .unwrap_or(StoreScheme::Memory)
        .name()
}

/// The URL of the store, from the configuration or its file.
fn store_url(config: &Config) -> Result<String, StartError> {
    match config.store.read_url() {
        Ok(url) => Ok(url.unwrap_or_else(|| "memory://".to_owned())),
        Err(error) => {
            let file = config.store.url_file.as_deref().unwrap_or_default();
            let message = format!("{file}: {error}");
            Err(SettingError::file("store.url_file", message).into())
        }
    }
}
