//! Semel as a process: the sidecar proxy, the protocol API and the admin API. The binary is
//! `semel`.
//!
//! | module | is |
//! |---|---|
//! | [`web`] | the HTTP toolkit of all interfaces: JSON, problem documents, access |
//! | [`config`] | the settings, from file, environment and flags |
//! | `listener` | connections: limits, TLS, HTTP, graceful shutdown |
//! | `handlers`, `body_pace` | the request handlers of the listeners; the minimum rate of bodies |
//! | `trust` | which peers may set forwarding and identity headers |
//! | `limits` | concurrency and rate limits, and each caller's share of them |
//! | `identity` | tenants and principals |
//! | `stack` | the idempotency layer around the proxy, built from the settings |
//! | [`proxy`] | the reverse proxy, and whether a retry is safe after an error |
//! | [`operators`] | credentials and roles of the admin API |
//! | [`health`] | health probes and the self-check |
//! | [`api`] | the protocol API: claim, renew and settle by explicit calls |
//! | [`admin`] | the admin API: inspect and change records |
//! | [`jobs`] | the jobs API |
//! | [`audit`] | the audit trail |
//! | [`telemetry`] | metrics, log lines and traces |
//! | [`live`], `ui` | statistics of the last minutes; the dashboard that shows them |
//! | `start`, [`server`], [`signals`] | the process: open, serve, reload, drain |
//! | [`problems`], `help`, `openapi` | sources of generated documents |

pub mod admin;
pub mod api;
pub mod audit;
mod body_pace;
pub mod config;
mod handlers;
pub mod health;
mod help;
mod identity;
pub mod jobs;
mod limits;
mod listener;
pub mod live;
mod openapi;
pub mod operators;
pub mod problems;
pub mod proxy;
mod replay_auth;
pub mod server;
pub mod signals;
mod stack;
mod start;
pub mod telemetry;
mod tls;
mod trust;
mod ui;
pub mod web;

pub use identity::KeyFileError;
#[doc(hidden)]
pub use identity::identity_reader;
pub use limits::Limiter;
#[doc(hidden)]
pub use listener::scan_for_ambiguity;
pub use openapi::openapi;
pub use server::{DrainOutcome, Server, serve_operators, serve_router};
pub use signals::{log_keys, serve_until_signal};
pub use stack::{Stack, StackError, key_openapi};
pub use start::{
    Mounts, OpenOptions, Services, StartError, load_keys, new_encryption_key, reload_keys,
};
pub use tls::TlsError;
pub use ui::{dashboard_file, page_file};
pub use web::Peer;

/// Starts a server, and serves until a signal ends it.
///
/// # Errors
/// [`StartError`] has the cause and a fix.
pub async fn run(
    loaded: config::Loaded,
    semel: semel::Semel,
    mounts: Mounts,
) -> Result<DrainOutcome, StartError> {
    let server = Server::start(loaded, semel, mounts).await?;
    serve_until_signal(server)
        .await
        .map_err(StartError::Signals)
}
