//! [`MariaDbServer`]: a private MariaDB of one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Private, free_port, new_folder};

/// How often to ask whether a server is ready, and how long to go on asking.
const ASK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: usize = 1_200;

/// The user, without a password, and the database.
const NAME: &str = "semel";

/// A server of the test's own, with its data in a folder of its own.
#[derive(Debug)]
pub struct MariaDbServer {
    settings: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
    port: u16,
    process: Private,
}

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
        let folder = new_folder("mariadb");
        give_away(&folder);
        let mut init = as_owner("mariadb-install-db", &folder);
        init.arg("--no-defaults")
            .arg(format!("--datadir={}", data(&folder).display()));
        init.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        succeed(&mut init);
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
        server.sql(&format!(
            "create database {NAME}; create user {NAME}@'127.0.0.1'; grant all on *.* to {NAME}@'127.0.0.1'"
        ));
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
        Self::url_at(self.address())
    }

    /// The URL of the test's database at `address`, which may be a way to it that the test can cut.
    #[must_use]
    pub fn url_at(address: SocketAddr) -> String {
        format!("mysql://{NAME}@{address}/{NAME}")
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
        self.process = launch(&self.folder, self.port, &self.settings, &self.environment);
        self.answers().await;
    }

    async fn answers(&mut self) {
        let mut pause = tokio::time::interval(ASK_EVERY);
        for _ in 0..PATIENCE {
            pause.tick().await;
            assert!(self.process.runs(), "the server ended at its start");
            if self.try_sql("select 1").is_ok() {
                return;
            }
        }
        panic!("the server doesn't answer");
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
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1"]);
        command.args(["--connect-timeout=3", "--user=root", "--batch"]);
        command.args([&format!("--port={}", self.port), "--skip-column-names"]);
        command.args(["--execute", text]);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for MariaDbServer {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
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
    let mut command = as_owner("mariadbd", folder);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data(folder).display()));
    command.arg(format!("--port={port}"));
    // Relative to the data folder: a full path could be longer than a socket's may be.
    command.args(["--bind-address=127.0.0.1", "--socket=server.sock"]);
    command.args(["--pid-file=server.pid", "--skip-name-resolve"]);
    command.args([
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
    ]);
    command.args(settings.iter().map(|setting| format!("--{setting}")));
    Private::start(&mut command)
}

/// The server refuses to run as root; then it runs as the user that its package made. A server
/// removes the temporary tables that it finds when it starts, those of another too: each has a
/// folder of its own for them.
fn as_owner(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("TMPDIR", folder);
    if let Some((user, group)) = super::package_user("mysql") {
        command.uid(user).gid(group);
    }
    command.current_dir(std::env::temp_dir());
    command
}

fn give_away(folder: &Path) {
    if let Some((user, group)) = super::package_user("mysql") {
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
