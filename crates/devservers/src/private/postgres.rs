//! [`PostgresServer`]: a private PostgreSQL of one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Private, free_port, new_folder};

/// How often to ask whether a server is ready, and how long to go on asking.
const ASK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: usize = 1_200;
/// How often to ask before the sessions of a killed server are killed, too.
const SESSIONS_END_AFTER: usize = 100;

/// Where Debian puts the servers, one folder for each major version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The user and the database.
const NAME: &str = "semel";

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct PostgresServer {
    settings: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
    port: u16,
    process: Private,
}

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
        give_away(&folder);
        let mut init = as_owner(&program("initdb"));
        init.args(["--auth=trust", "--username", NAME, "--encoding=UTF8"]);
        init.args(["--locale=C.UTF-8", "--no-sync", "--pgdata"]);
        succeed(init.arg(data(&folder)));
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
        give_away(&folder);
        let from = format!(
            "host={} port={} user={NAME} application_name={name}",
            primary.ip(),
            primary.port()
        );
        let mut copy = as_owner(&program("pg_basebackup"));
        copy.args([
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        succeed(
            copy.args(["--dbname", &from, "--pgdata"])
                .arg(data(&folder)),
        );
        Self::run(folder, settings, &[]).await
    }

    async fn run(folder: PathBuf, settings: &[&str], environment: &[(&str, &str)]) -> Self {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment: Vec<_> = environment.iter().map(owned).collect();
        let port = free_port();
        let process = launch(&folder, port, &settings, &environment);
        let mut server = Self {
            settings,
            environment,
            folder,
            port,
            process,
        };
        server.answers().await;
        server
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        url_at(self.address())
    }

    /// Its folder: a place for certificates and the like.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process.
    #[must_use]
    pub const fn process(&self) -> &Private {
        &self.process
    }

    /// Kills it at once, as a machine that fails does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on its own data, at the same port, and waits until it answers.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn restart(&mut self) {
        self.process.kill();
        self.recover().await;
    }

    /// Waits until it answers, and starts it again where it has ended.
    ///
    /// # Panics
    /// Where it doesn't start.
    pub async fn recover(&mut self) {
        let mut pause = tokio::time::interval(ASK_EVERY);
        for attempt in 1..=PATIENCE {
            // Until the last session of the killed one is gone, the new one refuses to start,
            // sooner or later. One that waits for a lock of another never notices.
            if attempt.is_multiple_of(SESSIONS_END_AFTER) && !self.process.runs() {
                self.kill_sessions();
            }
            if !self.process.runs() {
                self.process = launch(&self.folder, self.port, &self.settings, &self.environment);
            }
            pause.tick().await;
            if self.try_sql("postgres", "select 1").is_ok() {
                return;
            }
        }
        panic!("the server doesn't start again");
    }

    /// Kills what is left of a server that has ended: processes that work in its folder.
    fn kill_sessions(&self) {
        let data = data(&self.folder);
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

    async fn answers(&mut self) {
        let mut pause = tokio::time::interval(ASK_EVERY);
        for _ in 0..PATIENCE {
            pause.tick().await;
            assert!(self.process.runs(), "the server ended at its start");
            if self.try_sql("postgres", "select 1").is_ok() {
                return;
            }
        }
        panic!("the server doesn't answer");
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
        let mut command = self.psql(database, text);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// The client, which runs statements as the owner.
    #[must_use]
    pub fn psql(&self, database: &str, text: &str) -> Command {
        let mut command = Command::new(program("psql"));
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
        ]);
        command.args(["-p", &self.port.to_string(), "-U", NAME, "-d", database]);
        command.args(["-c", text]).env("PGCONNECT_TIMEOUT", "3");
        // What a test limits is what it tests, not what prepares it.
        command.env("PGOPTIONS", "-c statement_timeout=0");
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The URL of the test's database at `address`, which may be a way to it that the test can cut.
#[must_use]
pub fn url_at(address: SocketAddr) -> String {
    format!("postgres://{NAME}@{address}/{NAME}")
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn launch(
    folder: &Path,
    port: u16,
    settings: &[String],
    environment: &[(String, String)],
) -> Private {
    let mut command = as_owner(&program("postgres"));
    command.envs(environment.iter().cloned());
    command.arg("-D").arg(data(folder));
    let own = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=60",
    ];
    for setting in own
        .iter()
        .map(ToString::to_string)
        .chain(settings.iter().cloned())
    {
        command.args(["-c", &setting]);
    }
    Private::start(command.args(["-c", &format!("port={port}")]))
}

/// One of PostgreSQL's own programs, of the newest version that is installed.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten();
    let mut versions: Vec<u32> = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    let newest = versions.pop().expect("PostgreSQL is installed");
    Path::new(VERSIONS)
        .join(newest.to_string())
        .join("bin")
        .join(name)
}

/// PostgreSQL refuses to run as root; then it runs as the user that its package made.
fn as_owner(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = super::package_user("postgres") {
        command.uid(user).gid(group);
    }
    command.current_dir(std::env::temp_dir());
    command
}

fn give_away(folder: &Path) {
    if let Some((user, group)) = super::package_user("postgres") {
        std::os::unix::fs::chown(folder, Some(user), Some(group))
            .expect("root may give files away");
    }
}

fn succeed(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
