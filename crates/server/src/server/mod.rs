//! The server process: listeners, the stack behind them, reload and drain.
//!
//! | file | is |
//! |---|---|
//! | `listen` | the listeners |
//! | `summary` | the log lines at start |
//! | `reload` | the settings that need a restart |
//! | `upstreams` | the check whether the service can be reached |

mod listen;
mod reload;
mod summary;
mod upstreams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use parking_lot::Mutex;
use semel::Semel;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Loaded, SelfCheck};
use crate::handlers::{MainHandler, OwnPath};
use crate::health::{self, Health};
use crate::limits::Limiter;
use crate::listener::{Bounds, ConnectionAccounting, RunningListener};
use crate::stack::{SharedStack, Stack};
use crate::start::{Mounts, StartError};
use crate::tls;
use listen::{body_pace, listen, listen_admin};
pub use listen::{serve_operators, serve_router};
use summary::{Addresses, summarize};

/// A running server process.
pub struct Server {
    shared: Arc<Shared>,
    main: RunningListener,
    admin: Option<RunningListener>,
    limiter: Limiter,
    semel: Semel,
    health: Arc<Health>,
    tunnels: TaskTracker,
}

struct Shared {
    stack: SharedStack,
    loaded: Mutex<Loaded>,
}

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// All running requests have finished.
    Complete,
    /// The time was up, and some requests were cut off.
    CutOff,
}

impl Server {
    /// Runs the self-check and starts the listeners.
    ///
    /// # Errors
    /// [`StartError`] has the cause and a fix.
    pub async fn start(loaded: Loaded, semel: Semel, mounts: Mounts) -> Result<Self, StartError> {
        let config = loaded.config.clone();
        let tunnels = TaskTracker::new();
        let limiter = mounts.limiter.clone();
        let limiter = limiter.unwrap_or_else(|| Limiter::new(&config.limits));
        let stack = Stack::new(&config, &semel, limiter.clone(), tunnels.clone())?;
        let health = Health::new(&semel, &config.environment, config.health.self_check);
        run_self_check(&health, &config).await?;
        let stack: SharedStack = Arc::new(ArcSwap::from_pointee(stack));
        let router = health.short_router().merge(mounts.main);
        let listener = &config.listener;
        let own = (!listener.own_path.is_empty()).then(|| OwnPath {
            path: listener.own_path.as_str().into(),
            router: Router::new().nest(&listener.own_path, router),
        });
        let jobs = mounts.jobs.map(|router| OwnPath {
            path: crate::jobs::PATH.into(),
            router,
        });
        let handler = MainHandler {
            stack: Arc::clone(&stack),
            own_paths: own.into_iter().chain(jobs).collect(),
            tracing: mounts.tracing,
            max_body: listener.max_body.bytes(),
            body_timeout: listener.body_timeout.0,
            pace: body_pace(&config, &semel),
            limiter: limiter.clone(),
        };
        let bounds = Bounds::from_config(&config);
        let accounting = ConnectionAccounting {
            trusted: listener.peers(),
            limiter: Some(limiter.clone()),
        };
        let main = listen(
            "listener.address",
            &listener.address,
            &listener.tls,
            bounds,
            accounting,
            handler,
        )
        .await?;
        let admin = listen_admin(&config, &health, mounts.admin).await?;
        let server = Self {
            shared: Arc::new(Shared {
                stack,
                loaded: Mutex::new(loaded),
            }),
            main,
            admin,
            limiter,
            semel,
            health,
            tunnels,
        };
        let addresses = Addresses {
            main: server.address(),
            admin: server.admin_address(),
        };
        for line in summarize(&config, &server.semel, &addresses) {
            tracing::info!("{line}");
        }
        tokio::spawn(upstreams::warn_of_unreachable(config.upstream.urls.clone()));
        Ok(server)
    }

    /// The address of the main listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// The address of the admin listener.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Reads the configuration again, for new requests. Returns the changed settings that need a
    /// restart.
    ///
    /// # Errors
    /// [`StartError`] if the new configuration is invalid. The old one stays in effect.
    pub fn reload(&self) -> Result<Vec<&'static str>, StartError> {
        let mut current = self.shared.loaded.lock();
        let mut new = current.reload()?;
        let ignored = reload::find_ignored_changes(&current.config, &new.config);
        // A reload keeps the sockets, and which peers are trusted depends on the address in use.
        let (old, listener) = (&current.config.listener, &mut new.config.listener);
        listener.address.clone_from(&old.address);
        let limiter = self.limiter.clone();
        let stack = Stack::new(&new.config, &self.semel, limiter, self.tunnels.clone())?;
        let main = tls::server_config(&new.config.listener.tls)?;
        // The credential of the admin API is fixed at start. If the new file replaced certificates
        // by tokens, dropping the certificates now would leave the API open.
        let (old, tls) = (&current.config.admin.tls, &mut new.config.admin.tls);
        tls.client_ca_file.clone_from(&old.client_ca_file);
        tls.client_optional = old.client_optional;
        let admin = tls::server_config(&new.config.admin.tls)?;
        // Nothing can fail after this point.
        self.shared.stack.store(Arc::new(stack));
        self.main.tls.store(main);
        if let Some(admin_listener) = &self.admin {
            admin_listener.tls.store(admin);
        }
        *current = new;
        Ok(ignored)
    }

    /// Loads the encryption keys of the current configuration again. Returns whether there are any.
    ///
    /// # Errors
    /// [`StartError`] if they are unusable, or don't fit the store. The old keys stay.
    pub async fn reload_keys(&self) -> Result<bool, StartError> {
        let config = self.shared.loaded.lock().config.clone();
        crate::start::reload_keys(&config, &self.semel).await
    }

    /// Accepts no more connections, and finishes running requests within `drain_time`.
    pub async fn drain(self) -> DrainOutcome {
        self.health.start_drain();
        let limit = self.shared.loaded.lock().config.drain_time.0;
        let cut = self.main.cut_off_token();
        self.main.stop();
        self.tunnels.close();
        let finish = async {
            self.main.drain().await;
            // Effects whose callers have disconnected run without a connection.
            self.semel.idle().await;
            self.tunnels.wait().await;
        };
        let clock = &self.semel.engine().env().clock;
        let outcome = match clock.timeout(limit, finish).await {
            Ok(()) => DrainOutcome::Complete,
            Err(_) => DrainOutcome::CutOff,
        };
        cut.cancel();
        if let Some(admin) = self.admin {
            let cut = admin.cut_off_token();
            let _ = clock.timeout(ADMIN_DRAIN_TIME, admin.drain()).await;
            cut.cancel();
        }
        outcome
    }
}

/// How long the admin listener may drain.
const ADMIN_DRAIN_TIME: Duration = Duration::from_secs(1);

async fn run_self_check(health: &Arc<Health>, config: &Config) -> Result<(), StartError> {
    let mode = config.health.self_check;
    if mode == SelfCheck::Off {
        return Ok(());
    }
    match (health.self_check().await, mode) {
        (Ok(()), _) => tracing::info!(
            "the self-check passed: of two requests with one key, one ran and one was replayed"
        ),
        (Err(why), SelfCheck::Warn) => tracing::error!(
            why,
            "the self-check failed; the process continues because health.self_check is \"warn\""
        ),
        (Err(why), _) => return Err(StartError::SelfCheck(why)),
    }
    let every = config.health.self_check_every.0;
    tokio::spawn(health::repeat_self_check(Arc::downgrade(health), every));
    Ok(())
}
