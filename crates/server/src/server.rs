//! The process: listeners, the stack behind them, reload and drain.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use parking_lot::Mutex;
use semel::Semel;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Loaded, SelfCheck, Tls, without_password};
use crate::front::{AdminFront, Front, Own, RouterFront};
use crate::health::{self, Health};
use crate::limits::Limiter;
use crate::listener::{Bounds, Counted, Listening};
use crate::paced::Pace;
use crate::stack::{SharedStack, Stack};
use crate::start::{Mounts, Opened, StartError};
use crate::tls;

/// A process at work.
pub struct Server {
    shared: Arc<Shared>,
    main: Listening,
    admin: Option<Listening>,
    limiter: Limiter,
    semel: Semel,
    health: Arc<Health>,
    tunnels: TaskTracker,
}

struct Shared {
    stack: SharedStack,
    loaded: Mutex<Loaded>,
}

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything that had begun was finished.
    Whole,
    /// The time was up, and something was cut off.
    CutOff,
}

impl Server {
    /// Checks itself, listens, and answers from then on.
    ///
    /// # Errors
    /// [`StartError`] says what is wrong and what to do.
    pub async fn start(loaded: Loaded, semel: Semel, mounts: Mounts) -> Result<Self, StartError> {
        let config = loaded.config.clone();
        let tunnels = TaskTracker::new();
        let limiter = mounts.limiter.clone();
        let limiter = limiter.unwrap_or_else(|| Limiter::new(&config.limits));
        let stack = Stack::new(&config, &semel, limiter.clone(), tunnels.clone())?;
        let health = Health::new(&semel, &config.environment, config.health.self_check);
        check_itself(&health, &config).await?;
        let stack: SharedStack = Arc::new(ArcSwap::from_pointee(stack));
        let router = health.short_router().merge(mounts.main);
        let listener = &config.listener;
        let own = (!listener.own_path.is_empty()).then(|| Own {
            path: listener.own_path.as_str().into(),
            router: Router::new().nest(&listener.own_path, router),
        });
        let jobs = mounts.jobs.map(|router| Own {
            path: crate::jobs::PATH.into(),
            router,
        });
        let front = Front {
            stack: Arc::clone(&stack),
            own: own.into_iter().chain(jobs).collect(),
            tracing: mounts.tracing,
            max_body: listener.max_body.bytes(),
            body_timeout: listener.body_timeout.0,
            pace: pace(&config, &semel),
            limiter: limiter.clone(),
        };
        let bounds = Bounds::of(&config);
        let counted = Counted {
            trusted: listener.peers(),
            limiter: Some(limiter.clone()),
        };
        let main = listen(
            "listener.address",
            &listener.address,
            &listener.tls,
            bounds,
            counted,
            front,
        )
        .await?;
        let admin = listen_for_operators(&config, &health, mounts.admin).await?;
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
        for line in server.in_words(&config) {
            tracing::info!("{line}");
        }
        tokio::spawn(warn_of_upstreams(config.upstream.urls.clone()));
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// Where it listens for operators.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// What it does, for people who have just started it.
    fn in_words(&self, config: &Config) -> Vec<String> {
        let scheme = if config.listener.tls.cert_file.is_some() {
            "https"
        } else {
            "http"
        };
        let urls: Vec<String> = config
            .upstream
            .urls
            .iter()
            .map(|url| without_password(url))
            .collect();
        let behind = match urls.is_empty() {
            true => "for Semel's own API alone".to_owned(),
            false => format!("forwarding to {}", urls.join(", ")),
        };
        let store = self.semel.store().capabilities();
        let kept = match (store.shared, store.durable) {
            (true, true) if store.name == "sqlite" => {
                "every process on this host sees them, and they outlive this one"
            }
            (true, true) => "every node sees them, and they outlive this process",
            (true, false) => "every node sees them",
            _ => "this process alone sees them, and they end with it: for trying out",
        };
        let mut lines = vec![
            format!("listening on {scheme}://{}, {behind}", self.address()),
            format!("records are kept in {}: {kept}", store.name),
            "requests with a key run once and are answered the same every time; without a key they pass untouched".to_owned(),
        ];
        let crash = |route: &crate::config::RouteSettings| match route.crash {
            crate::config::Crash::Takeover => {
                "run again by the next request with its key (at least once)"
            }
            crate::config::Crash::Hold => "in doubt until resolved (at most once)",
        };
        lines.push(format!(
            "a request whose outcome was lost is {}",
            crash(&config.defaults)
        ));
        for route in &config.routes {
            lines.push(format!(
                "  on {} it is {}",
                route.path,
                crash(&route.settings)
            ));
        }
        let own = &config.listener.own_path;
        if !own.is_empty() {
            lines.push(format!("health is at {own}/healthz and {own}/readyz"));
        }
        if let Some(admin) = self.admin_address() {
            lines.push(format!("operators are served on {admin}"));
        }
        lines
    }

    /// Reads the configuration again, for new requests. Answers with the settings that can't change while
    /// the process runs and were changed all the same.
    ///
    /// # Errors
    /// [`StartError`]: what is wrong. Everything is as before then.
    pub fn reload(&self) -> Result<Vec<&'static str>, StartError> {
        let mut current = self.shared.loaded.lock();
        let mut new = current.again()?;
        let fixed = changed_but_fixed(&current.config, &new.config);
        let limiter = self.limiter.clone();
        let stack = Stack::new(&new.config, &self.semel, limiter, self.tunnels.clone())?;
        let main = tls::server_config(&new.config.listener.tls)?;
        // Who may call was decided at the start: a new file may say less about certificates because it says more about
        // tokens, which aren't looked at before the next start.
        let (old, tls) = (&current.config.admin.tls, &mut new.config.admin.tls);
        tls.client_ca_file.clone_from(&old.client_ca_file);
        tls.client_optional = old.client_optional;
        let admin = tls::server_config(&new.config.admin.tls)?;
        // Nothing can fail from here on.
        self.shared.stack.store(Arc::new(stack));
        self.main.tls.store(main);
        if let Some(listening) = &self.admin {
            listening.tls.store(admin);
        }
        *current = new;
        Ok(fixed)
    }

    /// Takes no more connections, finishes what has begun, within the time that the configuration gives.
    pub async fn drain(self) -> Drained {
        self.health.drains();
        let limit = self.shared.loaded.lock().config.drain_time.0;
        let cut = self.main.cutter();
        self.main.stop();
        self.tunnels.close();
        let finish = async {
            self.main.drain().await;
            // Effects whose callers have left are on no connection.
            self.semel.idle().await;
            self.tunnels.wait().await;
        };
        let drained = match tokio::time::timeout(limit, finish).await {
            Ok(()) => Drained::Whole,
            Err(_) => Drained::CutOff,
        };
        cut.cancel();
        if let Some(admin) = self.admin {
            let cut = admin.cutter();
            let _ = tokio::time::timeout(ADMIN_DRAIN, admin.drain()).await;
            cut.cancel();
        }
        drained
    }
}

/// Serves operators alone, where the configuration says an address: for a process that serves its callers by other
/// means, such as the gateway for agents' tools. From when `ends` completes it isn't ready for more; it ends with the
/// process.
///
/// # Errors
/// [`StartError`] says what is wrong and what to do.
pub async fn serve_operators(
    config: &Config,
    opened: &Opened,
    ends: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let health = Health::new(&opened.semel, &config.environment, SelfCheck::Off);
    let router = opened.mounts(config)?.admin;
    let Some(listening) = listen_for_operators(config, &health, router).await? else {
        return Ok(());
    };
    tracing::info!("operators are served on http://{}", listening.address);
    tokio::spawn(async move {
        ends.await;
        health.drains();
    });
    Ok(())
}

/// Serves a router on `listener.address`, with the listener's bounds, limits and TLS: for a process that answers its callers
/// by itself, such as the gateway for agents' tools. Once this is dropped, what has begun is finished.
///
/// # Errors
/// [`StartError`] says what is wrong and what to do.
pub async fn serve_router(
    config: &Config,
    opened: &Opened,
    router: Router,
) -> Result<(), StartError> {
    let (listener, limiter) = (&config.listener, opened.limiter.clone());
    let front = RouterFront {
        router,
        limiter: limiter.clone(),
        body_timeout: listener.body_timeout.0,
        pace: pace(config, &opened.semel),
    };
    let counted = Counted {
        trusted: listener.peers(),
        limiter: Some(limiter),
    };
    let (bounds, tls) = (Bounds::of(config), &listener.tls);
    let at = &listener.address;
    let listening = listen("listener.address", at, tls, bounds, counted, front).await?;
    let _until_dropped = listening.until_dropped();
    let scheme = if tls.cert_file.is_some() {
        "https"
    } else {
        "http"
    };
    tracing::info!("listens on {scheme}://{}", listening.address);
    std::future::pending().await
}

/// How slowly bodies may come.
fn pace(config: &Config, semel: &Semel) -> Option<Pace> {
    let bytes_a_second = config.limits.body_rate.0;
    (bytes_a_second > 0).then(|| Pace {
        bytes_a_second,
        after: config.listener.body_timeout.0,
        clock: Arc::clone(&semel.engine().env().clock),
    })
}

async fn listen_for_operators(
    config: &Config,
    health: &Arc<Health>,
    admin: Router,
) -> Result<Option<Listening>, StartError> {
    let Some(address) = &config.admin.address else {
        return Ok(None);
    };
    let router = health.router().merge(admin);
    let bounds = Bounds::of(&Config::default());
    let counted = Counted {
        trusted: Vec::new(),
        limiter: None,
    };
    let (front, tls) = (AdminFront { router }, &config.admin.tls);
    let listening = listen("admin.address", address, tls, bounds, counted, front).await?;
    Ok(Some(listening))
}

/// How long an operator's last request may take.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

async fn check_itself(health: &Arc<Health>, config: &Config) -> Result<(), StartError> {
    let mode = config.health.self_check;
    if mode == SelfCheck::Off {
        return Ok(());
    }
    match (health.self_check().await, mode) {
        (Ok(()), _) => tracing::info!(
            "self-check passed: of two requests with one key, one ran and one was a replay"
        ),
        (Err(why), SelfCheck::Warn) => tracing::error!(
            why,
            "the self-check failed; going on, as health.self_check says"
        ),
        (Err(why), _) => return Err(StartError::SelfCheck(why)),
    }
    let every = config.health.self_check_every.0;
    tokio::spawn(health::check_now_and_then(Arc::downgrade(health), every));
    Ok(())
}

async fn listen<A: crate::listener::Answer>(
    setting: &'static str,
    address: &str,
    tls: &Tls,
    bounds: Bounds,
    counted: Counted,
    answer: A,
) -> Result<Listening, StartError> {
    let tls = tls::server_config(tls)?;
    let failed = |source: std::io::Error| StartError::Listen {
        setting,
        address: address.to_owned(),
        fix: match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens there; end it, or choose another port".to_owned()
            }
            std::io::ErrorKind::PermissionDenied => {
                "ports below 1024 need a privilege; choose a higher one".to_owned()
            }
            std::io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address; try 127.0.0.1 or 0.0.0.0".to_owned()
            }
            _ => "choose another address".to_owned(),
        },
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Listening::start(listener, tls, bounds, counted, answer).map_err(failed)
}

/// What can't change while the process runs.
const FIXED: [&str; 25] = [
    "api",
    "audit",
    "environment",
    "store",
    "engine",
    "jobs",
    "log",
    "metrics",
    "traces",
    "health",
    "listener.address",
    "listener.own_path",
    "listener.max_head",
    "listener.max_body",
    "listener.head_timeout",
    "listener.body_timeout",
    "limits",
    "admin.address",
    "admin.dashboard",
    "admin.open",
    "admin.token_file",
    "admin.operators_file",
    "admin.allowed_names",
    "admin.tls.client_ca_file",
    "admin.tls.client_optional",
];

fn changed_but_fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let values = [old, new].map(|config| serde_json::to_value(config).unwrap_or_default());
    let differs = |path: &&str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        values[0].pointer(&pointer) != values[1].pointer(&pointer)
    };
    FIXED.into_iter().filter(differs).collect()
}

/// How long a service may take to be connected to, before somebody is told.
const REACH: Duration = Duration::from_secs(2);

/// A service that can't be reached at start may still be starting: no reason not to.
async fn warn_of_upstreams(urls: Vec<String>) {
    for url in urls {
        let Some((host, port)) = host_and_port(&url) else {
            continue;
        };
        let connecting = tokio::net::TcpStream::connect((host.as_str(), port));
        let shown = without_password(&url);
        match tokio::time::timeout(REACH, connecting).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(
                "the service at {shown} can't be reached yet ({error}); requests get 502 until it can: is it running, and is the port right?"
            ),
            Err(_) => tracing::warn!(
                "the service at {shown} doesn't answer yet; requests get 502 until it does"
            ),
        }
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let port = uri
        .port_u16()
        .unwrap_or(if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        });
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port))
}
