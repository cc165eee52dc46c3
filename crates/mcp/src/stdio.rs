//! The gateway on this process's own standard input and output.

use std::sync::Arc;

use crate::call::Caller;
use crate::gateway::Gateway;
use crate::http::HttpUpstream;
use crate::lines;
use crate::process::{DRAIN_TIME, EXIT_TIME, RunError, ServerCommand};
use crate::session::Session;

/// Serves one caller on standard input and output, and starts the server for it. Returns when the
/// caller has left and its calls have ended.
///
/// # Errors
/// [`RunError`] if the server cannot be started or exits with a failure.
pub async fn serve_command(
    gateway: Arc<Gateway>,
    caller: Caller,
    command: ServerCommand,
) -> Result<(), RunError> {
    let clock = gateway.clock();
    let (running, server) = command.start()?;
    let (client, written) = lines::connect(tokio::io::stdin(), tokio::io::stdout());
    Session::run(gateway, caller, client, server, DRAIN_TIME).await;
    // Both channels are closed by now. The last messages still have to be written.
    let _ = clock.timeout(EXIT_TIME, written).await;
    match running.end(&*clock).await {
        Some(status) if !status.success() => Err(RunError::Ended(status)),
        _ => Ok(()),
    }
}

/// Serves one caller on standard input and output, with a server behind streamable HTTP.
pub async fn serve_upstream(gateway: Arc<Gateway>, caller: Caller, upstream: HttpUpstream) {
    let clock = gateway.clock();
    let server = upstream.connect(gateway.clock(), gateway.settings.limit());
    let (client, written) = lines::connect(tokio::io::stdin(), tokio::io::stdout());
    Session::run(gateway, caller, client, server, DRAIN_TIME).await;
    let _ = clock.timeout(EXIT_TIME, written).await;
}
