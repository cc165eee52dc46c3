//! [`PostgresServer`]: a private PostgreSQL of one test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use super::server::{Server, until};
use super::{Private, free_port, new_folder, owned};
use crate::exec::capture;
use crate::launch::{Launch, give};
use crate::postgres::{self, NAME, USER};

/// How often to ask before the sessions of a killed server are killed, too.
const SESSIONS_END_AFTER: usize = 250;

/// Few, as many servers start.
const SESSIONS: &str = "max_connections=60";

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct PostgresServer(Server);

impl PostgresServer {
    /// Makes a database and starts a server with these settings, such as `["wal_level=replica"]`.
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
        Self::start_at(new_folder("postgres"), settings, environment).await
    }

    /// Like [`Self::start_in`], in this folder, which is removed at the end: on a small disk, for
    /// example.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn start_at(
        folder: PathBuf,
        settings: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        give(&folder, Some(USER)).expect("root may give files away");
        good(postgres::init(&data(&folder)));
        let server = Self::run(folder, settings, environment).await;
        server.sql("postgres", &format!("create database {NAME}"));
        server
    }

    /// Starts a replica of a server at `primary`, which may be a way to it that the test can cut.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn replica_of(primary: SocketAddr, name: &str, settings: &[&str]) -> Self {
        let folder = new_folder("postgres");
        give(&folder, Some(USER)).expect("root may give files away");
        good(postgres::copy(primary, name, &data(&folder), &[]));
        Self::run(folder, settings, &[]).await
    }

    async fn run(folder: PathBuf, settings: &[&str], environment: &[(&str, &str)]) -> Self {
        let (port, settings) = (free_port(), [&[SESSIONS], settings].concat());
        let launch = Launch {
            environment: owned(environment),
            ..good(postgres::server(&data(&folder), port, &settings))
        };
        let ready = |port| sql(port, "postgres", "select 1").map(drop);
        Self(Server::start(folder, port, launch, ready).await)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        postgres::url(self.address())
    }

    /// Its folder: a place for certificates and the like.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Its process.
    #[must_use]
    pub const fn process(&self) -> &Private {
        &self.0.process
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
        self.0.process.kill();
        self.recover().await;
    }

    /// Waits until it answers, and starts it again where it has ended.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn recover(&mut self) {
        let mut attempts = 0_usize;
        let ready = until(|| {
            attempts += 1;
            // Until the last session of the killed one is gone, the new one refuses to start,
            // sooner or later. One that waits for a lock of another never notices.
            if attempts.is_multiple_of(SESSIONS_END_AFTER) && !self.0.process.runs() {
                self.kill_sessions();
            }
            if !self.0.process.runs() {
                self.0.launch();
            }
            self.0.is_ready()
        });
        let ready = ready.await;
        ready.unwrap_or_else(|error| panic!("the server doesn't start again: {error}"));
    }

    /// Kills what is left of a server that has ended: processes that work in its folder.
    fn kill_sessions(&self) {
        let data = data(&self.0.folder);
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let works_here =
                std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data);
            let id = process.file_name().to_string_lossy().parse().ok();
            if let Some(id) = id.filter(|_| works_here).and_then(Pid::from_raw) {
                // An error means that it is gone already.
                let _ = kill_process(id, Signal::KILL);
            }
        }
    }

    /// Makes a replica the primary, and waits until it is.
    ///
    /// # Panics
    /// Where it doesn't become one.
    pub fn promote(&self) {
        let promoted = self.sql("postgres", "select pg_promote(true, 30)");
        assert_eq!(promoted, "t", "the replica was not promoted");
    }

    /// Runs statements, as the owner, and gives what they print.
    ///
    /// # Panics
    /// Where one fails.
    pub fn sql(&self, database: &str, text: &str) -> String {
        self.try_sql(database, text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Like [`Self::sql`], where that may fail.
    ///
    /// # Errors
    /// What the client said.
    pub fn try_sql(&self, database: &str, text: &str) -> Result<String, String> {
        sql(self.0.port, database, text).map_err(|error| error.to_string())
    }

    /// The client, which runs statements as the owner.
    ///
    /// # Panics
    /// Where it is not installed.
    #[must_use]
    pub fn psql(&self, database: &str, text: &str) -> Command {
        good(client(self.0.port, database, text))
    }
}

/// What a test limits is what it tests, not what prepares it.
fn client(port: u16, database: &str, text: &str) -> Result<Command> {
    let mut command = postgres::client(port, database, text)?;
    command.env("PGOPTIONS", "-c statement_timeout=0");
    Ok(command)
}

fn sql(port: u16, database: &str, text: &str) -> Result<String> {
    let printed = capture(&mut client(port, database, text)?)?;
    Ok(printed.trim().to_owned())
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn good<T>(done: Result<T>) -> T {
    done.unwrap_or_else(|error| panic!("{error:#}"))
}
