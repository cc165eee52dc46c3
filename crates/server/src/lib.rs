//! Semel as a process: the sidecar proxy, the protocol API and the admin API. The binary is `semel`.
//!
//! | module | is |
//! |---|---|
//! | [`config`] | the settings, from file, environment and flags |
//! | `listener`, `front`, `paced` | connections, and who answers what comes over them |
//! | `limits` | what is taken at a time, and each caller's share of it |
//! | `stack` | the idempotency layer around the proxy, made from the settings |
//! | [`proxy`] | the forwarding service, and what is known when it gets no answer |
//! | `identity` | tenants and principals |
//! | [`health`] | readiness and the self-check |
//! | [`api`] | the protocol API: claims by hand, for code that isn't HTTP-shaped |
//! | [`admin`] | the admin API: see and mend records |
//! | [`audit`] | what happened and who did what, kept |
//! | [`telemetry`] | metrics, log lines, traces |
//! | [`live`], `ui` | the last minutes in memory; the dashboard that shows them |
//! | `start`, [`server`], [`signals`] | the process: start, reload, drain |

pub mod admin;
pub mod api;
pub mod audit;
pub mod config;
mod door;
mod front;
pub mod health;
mod identity;
pub mod jobs;
mod known;
mod limits;
mod listener;
pub mod live;
mod openapi;
mod paced;
pub mod problems;
pub mod proxy;
pub mod server;
pub mod signals;
mod stack;
mod start;
pub mod telemetry;
mod tls;
mod ui;

pub use identity::KeyFileError;
#[doc(hidden)]
pub use identity::whose;
pub use limits::Limiter;
pub use listener::Peer;
#[doc(hidden)]
pub use listener::ambiguous;
pub use openapi::openapi;
pub use server::{Drained, Server, serve_operators, serve_router};
pub use signals::until_told;
pub use stack::{Stack, StackError};
pub use start::{Mounts, Opened, StartError, open, open_audited, open_for_tool};
pub use tls::TlsError;

/// Starts everything and serves until a signal ends it.
///
/// # Errors
/// [`StartError`] says what is wrong and what to do.
pub async fn run(
    loaded: config::Loaded,
    semel: semel::Semel,
    mounts: Mounts,
) -> Result<Drained, StartError> {
    let server = Server::start(loaded, semel, mounts).await?;
    until_told(server).await.map_err(|source| StartError::File {
        what: "signals",
        message: source.to_string(),
    })
}
