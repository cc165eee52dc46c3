//! [`NatsServer`]: a private NATS server with JetStream.

use super::server::Server;
use super::{free_port, new_folder};
use crate::nats;

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct NatsServer(Server);

impl NatsServer {
    /// Starts the server that `cargo xtask services up nats` has installed, and waits until it
    /// answers.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start() -> Self {
        let program = std::env::var_os("SEMEL_TEST_NATS_SERVER")
            .expect("SEMEL_TEST_NATS_SERVER: see `cargo xtask services up nats`");
        let (folder, port) = (new_folder("nats"), free_port());
        let launch = nats::server(program.into(), port, &folder, &[]);
        Self(Server::start(folder, port, launch, nats::ready).await)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        nats::url(self.0.port)
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.0.process.kill();
    }

    /// Starts it again on its own data, at the same port, and waits until it answers.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn restart(&mut self) {
        self.0.restart().await;
    }
}
