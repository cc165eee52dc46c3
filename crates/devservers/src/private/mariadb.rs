//! [`MariaDbServer`]: a private MariaDB of one test.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use super::server::Server;
use super::{free_port, new_folder, owned};
use crate::exec::capture;
use crate::launch::{Launch, give};
use crate::mariadb::{self, NAME, USER};

/// Small, as many of them start.
const SMALL: [&str; 2] = ["innodb-buffer-pool-size=32M", "innodb-log-file-size=16M"];

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct MariaDbServer(Server);

impl MariaDbServer {
    /// Makes a database and starts a server with these settings, such as `["sync-binlog=1"]`.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start(settings: &[&str]) -> Self {
        Self::start_in(settings, &[]).await
    }

    /// Like [`Self::start`], with variables in the server's environment: another clock, for
    /// example.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start_in(settings: &[&str], environment: &[(&str, &str)]) -> Self {
        let (folder, port) = (new_folder("mariadb"), free_port());
        let data = folder.join("data");
        give(&folder, Some(USER)).expect("root may give files away");
        let settings = [&SMALL, settings].concat();
        let launch = mariadb::init(&data, &folder)
            .and_then(|()| mariadb::server(&data, &folder, port, &settings));
        let launch = Launch {
            environment: owned(environment),
            ..launch.unwrap_or_else(|error| panic!("{error:#}"))
        };
        let ready = |port| sql(port, "select 1").map(drop);
        let server = Self(Server::start(folder, port, launch, ready).await);
        // Without a password.
        server.sql(&format!(
            "create database {NAME}; create user {NAME}@'127.0.0.1'; grant all on *.* to {NAME}@'127.0.0.1'"
        ));
        server
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        Self::url_at(self.address())
    }

    /// The URL of the test's database at `address`, which may be a way to it that the test can cut.
    #[must_use]
    pub fn url_at(address: SocketAddr) -> String {
        mariadb::url(address, None)
    }

    /// Kills it at once, as a machine that fails does.
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

    /// Runs statements, as root, and gives what they print.
    ///
    /// # Panics
    /// Where one fails.
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Like [`Self::sql`], where that may fail.
    ///
    /// # Errors
    /// What the client said.
    pub fn try_sql(&self, text: &str) -> Result<String, String> {
        sql(self.0.port, text).map_err(|error| error.to_string())
    }
}

fn sql(port: u16, text: &str) -> Result<String> {
    let printed = capture(&mut mariadb::client(port, "root", text))?;
    Ok(printed.trim().to_owned())
}
