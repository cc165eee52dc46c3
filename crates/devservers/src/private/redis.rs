//! [`RedisServer`]: a private Redis or Valkey of one test.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::ensure;

use super::server::{Server, until};
use super::{Private, free_port, new_folder};
use crate::redis;

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct RedisServer(Server);

impl RedisServer {
    /// Starts `redis-server` with these arguments after its own, such as `["--appendonly", "yes"]`,
    /// and waits until it answers. Without arguments it keeps nothing on disk.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start(arguments: &[&str]) -> Self {
        let program = redis::program().unwrap_or_else(|error| panic!("{error}"));
        Self::start_as(&program, "", arguments).await
    }

    /// Like [`Self::start`], with another program (a Valkey) and a file of settings (a sentinel's,
    /// which it changes itself).
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start_as(program: &Path, settings: &str, arguments: &[&str]) -> Self {
        let (folder, port) = (new_folder("redis"), free_port());
        let file = folder.join("server.conf");
        std::fs::write(&file, settings).expect("a folder of our own");
        let launch = redis::server(program.to_owned(), &file, &folder, port, arguments);
        Self(Server::start(folder, port, launch, redis::ready).await)
    }

    /// Its port on the loopback address.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.0.port
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        redis::url(self.0.port)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Its process.
    #[must_use]
    pub const fn process(&self) -> &Private {
        &self.0.process
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

    /// Asks until the answer contains `wanted`; for states that a server reaches by itself.
    ///
    /// # Panics
    /// Where that takes too long.
    pub async fn until(&self, words: &[&str], wanted: &str) {
        let answered = until(|| {
            let reply = self.try_ask(words)?;
            ensure!(reply.contains(wanted), "{reply}");
            Ok(())
        });
        let answered = answered.await;
        answered.unwrap_or_else(|error| panic!("{words:?} never answered {wanted}: {error}"));
    }

    /// Asks one command; the parts of a list are put on lines.
    ///
    /// # Panics
    /// Where it doesn't answer, or refuses.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        let reply = self.try_ask(words);
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Like [`Self::ask`], where the server may be gone or refuse.
    ///
    /// # Errors
    /// Where it doesn't answer, or refuses.
    pub fn try_ask(&self, words: &[&str]) -> std::io::Result<String> {
        redis::ask(self.0.port, words)
    }
}
