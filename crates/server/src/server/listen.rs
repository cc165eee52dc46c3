//! Listeners of the process: main, admin, and of any other router.

use std::sync::Arc;

use axum::Router;
use semel::Semel;
use tokio::net::TcpListener;

use crate::body_pace::BodyPace;
use crate::config::{Config, SelfCheck, Tls};
use crate::handlers::{AdminHandler, RouterHandler};
use crate::health::Health;
use crate::listener::{Bounds, ConnectionAccounting, RequestHandler, RunningListener};
use crate::start::{Services, StartError};
use crate::tls;
use crate::trust::TrustPolicy;

/// Serves only the admin listener, if the configuration has its address. For a process with other
/// callers, such as the gateway for agents' tools. It is not ready once `ends` completes.
///
/// # Errors
/// [`StartError`] has the cause and a fix.
pub async fn serve_operators(
    config: &Config,
    services: &Services,
    ends: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let health = Health::new(&services.semel, &config.environment, SelfCheck::Off);
    let router = services.mounts(config)?.admin;
    let Some(listener_handle) = listen_admin(config, &health, router).await? else {
        return Ok(());
    };
    tracing::info!(
        "the admin listener is on http://{}",
        listener_handle.address
    );
    tokio::spawn(async move {
        ends.await;
        health.start_drain();
    });
    Ok(())
}

/// Serves a router on `listener.address`, with the limits and the TLS of the main listener. For a
/// process with its own API, such as the gateway for agents' tools. Once the future is dropped,
/// running requests finish.
///
/// # Errors
/// [`StartError`] has the cause and a fix.
pub async fn serve_router(
    config: &Config,
    services: &Services,
    router: Router,
) -> Result<(), StartError> {
    let (listener, limiter) = (&config.listener, services.limiter.clone());
    let handler = RouterHandler {
        router,
        limiter: limiter.clone(),
        body_timeout: listener.body_timeout.0,
        pace: body_pace(config, &services.semel),
        trust: Arc::new(TrustPolicy::new(config)),
    };
    let accounting = ConnectionAccounting {
        trusted: listener.peers(),
        limiter: Some(limiter),
    };
    let (bounds, tls) = (Bounds::from_config(config), &listener.tls);
    let address = &listener.address;
    let listener_handle = listen(
        "listener.address",
        address,
        tls,
        bounds,
        accounting,
        handler,
    )
    .await?;
    let _stop_on_drop = listener_handle.stop_on_drop();
    let scheme = if tls.cert_file.is_some() {
        "https"
    } else {
        "http"
    };
    tracing::info!("listening on {scheme}://{}", listener_handle.address);
    std::future::pending().await
}

/// The minimum rate of request bodies.
pub(super) fn body_pace(config: &Config, semel: &Semel) -> Option<BodyPace> {
    let bytes_per_second = config.limits.body_rate.0;
    (bytes_per_second > 0).then(|| BodyPace {
        bytes_per_second,
        grace: config.listener.body_timeout.0,
        clock: Arc::clone(&semel.engine().env().clock),
    })
}

/// Starts the admin listener, if the configuration has its address.
pub(super) async fn listen_admin(
    config: &Config,
    health: &Arc<Health>,
    admin: Router,
) -> Result<Option<RunningListener>, StartError> {
    let Some(address) = &config.admin.address else {
        return Ok(None);
    };
    let router = health.router().merge(admin);
    let bounds = Bounds::from_config(&Config::default());
    let accounting = ConnectionAccounting {
        trusted: Vec::new(),
        limiter: None,
    };
    let (handler, tls) = (AdminHandler { router }, &config.admin.tls);
    let listener_handle =
        listen("admin.address", address, tls, bounds, accounting, handler).await?;
    Ok(Some(listener_handle))
}

/// Binds an address and starts a listener on it.
pub(super) async fn listen<H: RequestHandler>(
    setting: &'static str,
    address: &str,
    tls: &Tls,
    bounds: Bounds,
    accounting: ConnectionAccounting,
    handler: H,
) -> Result<RunningListener, StartError> {
    let tls = tls::server_config(tls)?;
    let failed = |source: std::io::Error| StartError::Listen {
        setting,
        address: address.to_owned(),
        fix: match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens there; stop it, or choose another port".to_owned()
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
    RunningListener::start(listener, tls, bounds, accounting, handler).map_err(failed)
}
