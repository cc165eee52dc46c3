//! The summary that the log shows at start.

use std::net::SocketAddr;

use semel::Semel;

use crate::config::{Config, Crash, RouteSettings, without_password};

/// The addresses that a process listens on.
pub(super) struct Addresses {
    pub(super) main: SocketAddr,
    pub(super) admin: Option<SocketAddr>,
}

/// Describes what the process does, for people who have just started it.
pub(super) fn summarize(config: &Config, semel: &Semel, addresses: &Addresses) -> Vec<String> {
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
    let purpose = match urls.is_empty() {
        true => "serving only Semel's own API".to_owned(),
        false => format!("forwarding to {}", urls.join(", ")),
    };
    let store = semel.store().capabilities();
    let visibility = match (store.shared, store.durable) {
        (true, true) if store.name == "sqlite" => {
            "all processes on this host share them, and they survive a restart"
        }
        (true, true) => "all nodes share them, and they survive a restart",
        (true, false) => "all nodes share them",
        _ => "only this process sees them, and they end with it: for experiments",
    };
    let mut lines = vec![
        format!("listening on {scheme}://{}, {purpose}", addresses.main),
        format!("records are kept in {}: {visibility}", store.name),
        "requests with a key run once, and retries get the same response; requests without a key \
         pass through"
            .to_owned(),
    ];
    let crash = |route: &RouteSettings| match route.crash {
        Crash::Takeover => "run again by the next request with its key (at least once)",
        Crash::Hold => "in doubt until an operator resolves it (at most once)",
    };
    lines.push(format!(
        "a request with an unknown outcome is {}",
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
    if let Some(admin) = addresses.admin {
        lines.push(format!("the admin listener is on {admin}"));
    }
    lines
}
