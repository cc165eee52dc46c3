//! Starts a server as a child process that speaks on its standard input and output.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use semel::core::Clock;
use tokio::process::Command;

use crate::lines;
use crate::peer::Peer;

/// How long running calls may take after their caller has left, and how long a server may take to
/// exit after its input has ended.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(30);
pub(crate) const EXIT_TIME: Duration = Duration::from_secs(5);

/// The command that starts a server, which speaks on its standard input and output.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    /// The program.
    pub program: OsString,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
}

/// Why the gateway ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server cannot be started.
    #[error(
        "the server can't be started: {}: {source}\n    \
         fix: check the command after `--` and the PATH of this process",
        .program.to_string_lossy()
    )]
    Start {
        /// The program that failed to start.
        program: OsString,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The server exited with a failure.
    #[error("the server exited early ({0})")]
    Ended(ExitStatus),
}

/// A running server process.
pub(crate) struct RunningServer {
    process: tokio::process::Child,
}

impl ServerCommand {
    pub(crate) fn start(&self) -> Result<(RunningServer, Peer), RunError> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // A signal to the gateway's process group must not end the server in the middle of a
            // call.
            .process_group(0);
        // The server must not see the gateway's secrets, such as the store's address.
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
        let (end, _) = lines::connect(output, input);
        Ok((RunningServer { process }, end))
    }
}

impl RunningServer {
    /// Waits until the process exits, now that its input has ended, and kills it after
    /// [`EXIT_TIME`].
    pub(crate) async fn end(mut self, clock: &dyn Clock) -> Option<ExitStatus> {
        match clock.timeout(EXIT_TIME, self.process.wait()).await {
            Ok(status) => status.ok(),
            Err(_) => {
                let _ = self.process.kill().await;
                None
            }
        }
    }
}
