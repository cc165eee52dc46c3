//! [`Server`]: what private servers have in common.

#![expect(
    clippy::disallowed_methods,
    reason = "polls a process that cannot wake us"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::Private;
use crate::launch::Launch;

/// How often to ask whether a server is ready, and how long to go on asking.
const ASK_EVERY: Duration = Duration::from_millis(20);
const PATIENCE: usize = 3_000;

/// A process on a port, with a folder that ends with it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) process: Private,
    launch: Launch,
    ready: fn(u16) -> Result<()>,
}

impl Server {
    /// Starts it, and waits until it is ready.
    pub(super) async fn start(
        folder: PathBuf,
        port: u16,
        launch: Launch,
        ready: fn(u16) -> Result<()>,
    ) -> Self {
        let mut server = Self {
            folder,
            port,
            process: Private::start(&mut launch.command()),
            launch,
            ready,
        };
        server.answers().await;
        server
    }

    pub(super) const fn address(&self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// Starts it again, and waits until it is ready.
    pub(super) async fn restart(&mut self) {
        self.process.kill();
        self.launch();
        self.answers().await;
    }

    /// Starts it again.
    pub(super) fn launch(&mut self) {
        self.process = Private::start(&mut self.launch.command());
    }

    async fn answers(&mut self) {
        let ready = until(|| {
            assert!(self.process.runs(), "the server ended at its start");
            (self.ready)(self.port)
        });
        let ready = ready.await;
        ready.unwrap_or_else(|error| panic!("the server doesn't answer: {error}"));
    }

    pub(super) fn is_ready(&self) -> Result<()> {
        (self.ready)(self.port)
    }
}

/// Asks until the answer is good; the last reason where it never is.
pub(super) async fn until(mut ask: impl FnMut() -> Result<()>) -> Result<()> {
    let mut pause = tokio::time::interval(ASK_EVERY);
    for _ in 1..PATIENCE {
        pause.tick().await;
        if ask().is_ok() {
            return Ok(());
        }
    }
    ask()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
