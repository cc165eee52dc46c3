//! MariaDB.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::exec;
use crate::launch::{Launch, command_as};

/// The user that its package makes; the server refuses to run as root.
pub const USER: &str = "mysql";

/// The user and the database of the tests.
pub const NAME: &str = "semel";

/// Makes a data folder. `temporary` is a folder of its own.
///
/// # Errors
/// Where that fails.
pub fn init(data: &Path, temporary: &Path) -> Result<()> {
    let program = exec::find_program("mariadb-install-db");
    let program = program.context("mariadb-install-db is not installed")?;
    let mut command = command_as(program, Some(USER));
    command.arg("--no-defaults");
    command.arg(format!("--datadir={}", data.display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    command.env("TMPDIR", temporary);
    exec::capture(&mut command).map(drop)
}

/// The server on a data folder, with these settings, such as `sync-binlog=1`. A server removes the
/// temporary tables that it finds when it starts, those of another too: each has a folder of its
/// own for them.
///
/// # Errors
/// Where it is not installed.
pub fn server(data: &Path, temporary: &Path, port: u16, settings: &[&str]) -> Result<Launch> {
    let program = exec::find_program("mariadbd").context("mariadbd is not installed")?;
    let mut args = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--tmpdir={}", temporary.display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--port={port}"),
        // Relative to the data folder: a full path could be longer than a socket's may be.
        "--socket=server.sock".to_owned(),
        "--pid-file=server.pid".to_owned(),
        "--skip-name-resolve".to_owned(),
    ];
    args.extend(settings.iter().map(|setting| format!("--{setting}")));
    Ok(Launch {
        user: Some(USER),
        ..Launch::new(program, args)
    })
}

/// The client, which runs statements.
#[must_use]
pub fn client(port: u16, user: &str, text: &str) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1"]);
    command.args(["--connect-timeout=3", &format!("--port={port}")]);
    command.args([&format!("--user={user}"), "--batch"]);
    command.args(["--skip-column-names", "--execute", text]);
    command
}

/// The URL of the tests' database at `address`, which may be a way to it that a test can cut. With
/// a password, where the user has one.
#[must_use]
pub fn url(address: SocketAddr, password: Option<&str>) -> String {
    let password = password.map_or_else(String::new, |password| format!(":{password}"));
    format!("mysql://{NAME}{password}@{address}/{NAME}")
}
