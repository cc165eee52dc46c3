//! PostgreSQL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::exec;
use crate::launch::{Launch, command_as};

/// The user that its package makes; the server refuses to run as root.
pub const USER: &str = "postgres";

/// The user and the database of the tests.
pub const NAME: &str = "semel";

/// Where Debian puts the servers, one folder for each major version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// One of PostgreSQL's own programs, of the newest version that is installed.
///
/// # Errors
/// Where it is not installed.
pub fn program(name: &str) -> Result<PathBuf> {
    let bin = |version: u32| Path::new(VERSIONS).join(version.to_string()).join("bin");
    let newest = std::fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|version| bin(*version).join(name).is_file())
        .max();
    let newest = newest.with_context(|| format!("PostgreSQL's {name} is not installed"))?;
    Ok(bin(newest).join(name))
}

/// Makes a data folder. No passwords: nobody but this machine's users can reach the loopback
/// address.
///
/// # Errors
/// Where that fails.
pub fn init(data: &Path) -> Result<()> {
    let mut command = command_as(program("initdb")?, Some(USER));
    command.args(["--auth=trust", "--username", NAME, "--encoding=UTF8"]);
    command.args(["--locale=C.UTF-8", "--no-sync", "--pgdata"]);
    exec::capture(command.arg(data)).map(drop)
}

/// Makes the data folder of a replica, called `name`, from a running primary; `more` is for
/// `pg_basebackup`.
///
/// # Errors
/// Where that fails.
pub fn copy(primary: SocketAddr, name: &str, data: &Path, more: &[&str]) -> Result<()> {
    let from = format!(
        "host={} port={} user={NAME} application_name={name}",
        primary.ip(),
        primary.port()
    );
    let mut command = command_as(program("pg_basebackup")?, Some(USER));
    command.args(["--write-recovery-conf", "--wal-method=stream"]);
    command.args(["--checkpoint=fast", "--no-sync"]).args(more);
    command.args(["--dbname", &from, "--pgdata"]).arg(data);
    exec::capture(&mut command).map(drop)
}

/// The server on a data folder, with these settings, such as `wal_level=replica`. No socket file:
/// its path could be too long, and TCP is what the tests use.
///
/// # Errors
/// Where it is not installed.
pub fn server(data: &Path, port: u16, settings: &[&str]) -> Result<Launch> {
    let own = ["listen_addresses=127.0.0.1", "unix_socket_directories="];
    let port = format!("port={port}");
    let mut args = vec!["-D".to_owned(), data.display().to_string()];
    for setting in own.iter().chain(settings).chain([&port.as_str()]) {
        args.extend(["-c".to_owned(), (*setting).to_owned()]);
    }
    Ok(Launch {
        user: Some(USER),
        ..Launch::new(program("postgres")?, args)
    })
}

/// The client, which runs statements as the owner.
///
/// # Errors
/// Where it is not installed.
pub fn client(port: u16, database: &str, text: &str) -> Result<Command> {
    let mut command = Command::new(program("psql")?);
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    command.args(["-U", NAME, "-d", database, "-c", text]);
    command.env("PGCONNECT_TIMEOUT", "3");
    Ok(command)
}

/// Runs statements as the owner, and returns what they print.
///
/// # Errors
/// Where one fails.
pub fn sql(port: u16, database: &str, text: &str) -> Result<String> {
    exec::capture_within(&mut client(port, database, text)?, Duration::from_secs(10))
}

/// The URL of the tests' database at `address`, which may be a way to it that a test can cut.
#[must_use]
pub fn url(address: SocketAddr) -> String {
    format!("postgres://{NAME}@{address}/{NAME}")
}

/// Its name and version.
///
/// # Errors
/// Where it is not installed.
pub fn version() -> Result<String> {
    let text = exec::capture(Command::new(program("postgres")?).arg("--version"))?;
    let number = text
        .split_whitespace()
        .nth(2)
        .context("no version in the answer")?;
    Ok(format!("PostgreSQL {number}"))
}
