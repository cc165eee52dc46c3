//! The protocol API, the admin API and the audit trail, as the settings want them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use semel::Semel;

use crate::admin::{self, AdminConfig, AdminState, Credential};
use crate::api::{self, Access, AccessError, ApiConfig, ApiState, Tokens};
use crate::audit::{FileConfig, FileSink, Nowhere, Sink, Trail, TrailConfig};
use crate::config::Config;
use crate::server::{Mounts, StartError};

/// Starts the audit trail: the observer of the [`Semel`] that is opened next.
///
/// # Errors
/// [`StartError`] where its file can't be written to.
pub fn trail(config: &Config) -> Result<Trail, StartError> {
    let env = semel::tokio_env();
    let sink: Arc<dyn Sink> = match &config.audit.file {
        None => Arc::new(Nowhere),
        Some(path) => {
            let file = FileConfig {
                max_bytes: config.audit.max_file.0,
                retention: config.audit.keep.0,
                ..FileConfig::new(path)
            };
            let opened = FileSink::open(file, Arc::clone(&env.clock));
            Arc::new(opened.map_err(|error| StartError::File {
                what: "audit.file",
                message: format!("{path} can't be written to: {error}"),
            })?)
        }
    };
    Ok(Trail::start(sink, TrailConfig::default(), env))
}

/// The routers of both APIs.
///
/// # Errors
/// [`StartError`] where a token can't be used, or somebody could call who should not.
pub fn mounts(config: &Config, semel: &Semel, trail: &Trail) -> Result<Mounts, StartError> {
    Ok(Mounts {
        main: protocol(config, semel)?,
        admin: operators(config, semel, trail)?,
    })
}

fn protocol(config: &Config, semel: &Semel) -> Result<Router, StartError> {
    let mut tokens = Tokens::default();
    for token in &config.api.tokens {
        let added = std::fs::read_to_string(&token.file)
            .map_err(AccessError::from)
            .and_then(|text| tokens.add(&token.tenant, &text));
        added.map_err(refused("api.tokens"))?;
    }
    let access = if config.api.tokens.is_empty() {
        Access::Open
    } else {
        Access::Tokens(tokens)
    };
    // A public address is usual for a proxy, so without tokens the API isn't there, and the proxy still is.
    if let Some(address) = address(&config.listener.address)
        && api::check_exposure(address, &access).is_err()
    {
        tracing::info!("the protocol API is off: {address} is public, and api.tokens is empty");
        return Ok(Router::new());
    }
    let policy = Some(Arc::new(crate::stack::policy(&config.defaults)));
    let settings = ApiConfig {
        policy,
        ..ApiConfig::default()
    };
    Ok(api::bare_router(ApiState::new(
        semel.clone(),
        access,
        settings,
    )))
}

fn operators(config: &Config, semel: &Semel, trail: &Trail) -> Result<Router, StartError> {
    let settings = &config.admin;
    let Some(text) = &settings.address else {
        return Ok(Router::new());
    };
    let credential = match (&settings.token_file, &settings.tls.client_ca_file) {
        (Some(file), _) => {
            Credential::token_file(Path::new(file)).map_err(refused("admin.token_file"))?
        }
        (None, Some(_)) if !settings.tls.client_optional => Credential::MutualTls,
        (None, _) => Credential::None,
    };
    if let Some(address) = address(text) {
        admin::check_exposure(address, &credential).map_err(refused("admin.address"))?;
    }
    let state = AdminState::new(
        semel.clone(),
        trail.clone(),
        credential,
        AdminConfig::default(),
    );
    Ok(admin::bare_router(state))
}

fn refused(what: &'static str) -> impl Fn(AccessError) -> StartError {
    move |source| StartError::Access { what, source }
}

/// A name resolves to one of several addresses, any of which may be public.
fn address(text: &str) -> Option<SocketAddr> {
    use std::net::ToSocketAddrs as _;
    let mut all = text.to_socket_addrs().ok()?.collect::<Vec<_>>();
    all.sort_by_key(|address| address.ip().is_loopback());
    all.into_iter().next()
}
