//! PostgreSQL, one server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::install::Package;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

pub(crate) const PACKAGE: Package = Package {
    name: "postgresql",
    present: || program("postgres").is_ok(),
};

/// Where Debian puts the servers, one folder for each major version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The user and the database that the tests get.
pub(crate) const NAME: &str = "semel";

/// A single primary.
#[derive(Debug)]
pub(crate) struct Postgres;

impl Service for Postgres {
    fn profile(&self) -> Profile {
        Profile {
            name: "postgres",
            needs: &[],
            packages: &[PACKAGE],
            wheel: None,
            user: Some("postgres"),
            ports: &["main"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let port = instance.port("main")?;
        init(instance, "main")?;
        instance.run(&server(instance, "main", port)?)?;
        create_database(instance, port)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let answer = sql(instance.port("main")?, NAME, "select 1")?;
        ensure!(answer.trim() == "1", "select 1 answers {answer}");
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        Ok(vec![(
            "SEMEL_TEST_POSTGRES_URL".to_owned(),
            url(instance.port("main")?),
        )])
    }

    fn version(&self, _instance: &Instance<'_>) -> Result<String> {
        version()
    }
}

/// One of PostgreSQL's own programs, of the newest version that is installed.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let mut versions: Vec<u32> = std::fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|version| folder(*version).join(name).is_file())
        .collect();
    versions.sort_unstable();
    let newest = versions
        .pop()
        .with_context(|| format!("PostgreSQL's {name} is not installed"))?;
    Ok(folder(newest).join(name))
}

fn folder(version: u32) -> PathBuf {
    Path::new(VERSIONS).join(version.to_string()).join("bin")
}

/// Makes the data folder `role` unless it is there.
pub(crate) fn init(instance: &Instance<'_>, role: &str) -> Result<()> {
    let data = instance.folder()?.join(role);
    if data.exists() {
        return Ok(());
    }
    instance.say("making the data folder");
    let beside = fresh(instance, role)?;
    exec::capture(
        instance
            .command(program("initdb")?)?
            // No passwords: nobody but this machine's users can reach the loopback address.
            .args([
                "--auth=trust",
                "--username",
                NAME,
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ])
            .args(["--no-sync", "--pgdata"])
            .arg(&beside),
    )?;
    // Only a whole data folder gets the name under which it is looked for.
    std::fs::rename(&beside, &data)?;
    Ok(())
}

/// The path beside `role` at which a data folder is prepared, cleared of what an interrupted run
/// left there.
pub(crate) fn fresh(instance: &Instance<'_>, role: &str) -> Result<PathBuf> {
    let beside = instance.folder()?.join(format!("{role}.new"));
    if beside.exists() {
        std::fs::remove_dir_all(&beside)?;
    }
    Ok(beside)
}

/// The server for the data folder `role`. No socket file: its path could be too long, and TCP is
/// what the tests use.
pub(crate) fn server(instance: &Instance<'_>, role: &str, port: u16) -> Result<Spec> {
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("port={port}"),
        "max_connections=200".to_owned(),
    ];
    let data = instance.folder()?.join(role);
    let mut args = vec!["-D".to_owned(), data.display().to_string()];
    args.extend(
        settings
            .into_iter()
            .flat_map(|setting| ["-c".to_owned(), setting]),
    );
    Ok(Spec {
        role: role.to_owned(),
        program: program("postgres")?,
        args,
        stop: Stop::Interrupt,
    })
}

/// Waits until the server answers, then makes the tests' database unless it is there.
pub(crate) fn create_database(instance: &Instance<'_>, port: u16) -> Result<()> {
    instance.wait_for("answering", Duration::from_secs(60), || {
        sql(port, "postgres", "select 1").map(drop)
    })?;
    let question = format!("select count(*) from pg_database where datname = '{NAME}'");
    if sql(port, "postgres", &question)?.trim() == "0" {
        sql(port, "postgres", &format!("create database {NAME}"))?;
    }
    Ok(())
}

/// Runs one statement.
pub(crate) fn sql(port: u16, database: &str, statement: &str) -> Result<String> {
    let mut command = Command::new(program("psql")?);
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    command.args([
        "-h",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        NAME,
        "-d",
        database,
    ]);
    command
        .args(["-c", statement])
        .env("PGCONNECT_TIMEOUT", "3");
    exec::capture_within(&mut command, Duration::from_secs(10))
}

pub(crate) fn url(port: u16) -> String {
    format!("postgres://{NAME}@127.0.0.1:{port}/{NAME}")
}

pub(crate) fn version() -> Result<String> {
    let text = exec::capture(Command::new(program("postgres")?).arg("--version"))?;
    let number = text
        .split_whitespace()
        .nth(2)
        .context("no version in the answer")?;
    Ok(format!("PostgreSQL {number}"))
}
