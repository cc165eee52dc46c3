//! A server's process, and the gateway on this process's own standard input and output.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use crate::call::Caller;
use crate::gateway::Gateway;
use crate::http::Upstream;
use crate::lines;
use crate::session::{End, Session};

/// How long calls that run get to end after their caller has left, and a server to end after its input has.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(5);

/// A server that is started as a process, and talks on its standard input and output.
#[derive(Clone, Debug)]
pub struct Child {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Why the gateway ended before it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server can't be started.
    #[error(
        "the server can't be started: {}: {source}\n    fix: check the command after `--`, as this process finds it",
        .program.to_string_lossy()
    )]
    Start {
        /// Which program.
        program: OsString,
        /// Why.
        source: std::io::Error,
    },
    /// The server has ended by itself.
    #[error("the server has ended by itself ({0})")]
    Ended(ExitStatus),
}

/// A running one.
pub(crate) struct Running {
    process: tokio::process::Child,
}

impl Child {
    pub(crate) fn start(&self) -> Result<(Running, End), RunError> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // What ends this process must not end the server while it still works on a call.
            .process_group(0);
        // The store's address and our secret are none of the server's business.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SEMEL_") {
                command.env_remove(name);
            }
        }
        let failed = |source| RunError::Start {
            program: self.program.clone(),
            source,
        };
        let mut process = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(std::io::Error::other(
                "it has no standard input or output",
            )));
        };
        let (end, _) = lines::end(output, input);
        Ok((Running { process }, end))
    }
}

impl Running {
    /// Waits for it to end by itself, now that its input has ended, and ends it otherwise.
    pub(crate) async fn end(mut self) -> Option<ExitStatus> {
        match tokio::time::timeout(END, self.process.wait()).await {
            Ok(status) => status.ok(),
            Err(_) => {
                let _ = self.process.kill().await;
                None
            }
        }
    }
}

/// Serves one caller on standard input and output, with a server that is started for it. Returns when the caller has
/// left and its calls have ended.
///
/// # Errors
/// [`RunError`] where the server can't be started, or has ended by itself.
pub async fn stdio(gateway: Arc<Gateway>, caller: Caller, child: Child) -> Result<(), RunError> {
    let (running, server) = child.start()?;
    let (client, written) = lines::end(tokio::io::stdin(), tokio::io::stdout());
    Session::run(gateway, caller, client, server, DRAIN).await;
    // Both ends are told no more by now; what was said last is written.
    let _ = tokio::time::timeout(END, written).await;
    match running.end().await {
        Some(status) if !status.success() => Err(RunError::Ended(status)),
        _ => Ok(()),
    }
}

/// Serves one caller on standard input and output, with a server behind streamable HTTP.
pub async fn bridge(gateway: Arc<Gateway>, caller: Caller, upstream: Upstream) {
    let server = upstream.connect(gateway.clock(), gateway.settings.limit());
    let (client, written) = lines::end(tokio::io::stdin(), tokio::io::stdout());
    Session::run(gateway, caller, client, server, DRAIN).await;
    let _ = tokio::time::timeout(END, written).await;
}
