//! MariaDB, one server.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::install::Package;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

/// User, password and database of the tests.
const NAME: &str = "semel";

/// A single server with its binary log on, as any server with replicas has.
#[derive(Debug)]
pub(crate) struct MariaDb;

impl Service for MariaDb {
    fn profile(&self) -> Profile {
        Profile {
            name: "mariadb",
            needs: &[],
            packages: &[
                Package {
                    name: "mariadb-server",
                    present: || exec::find_program("mariadbd").is_some(),
                },
                Package {
                    name: "mariadb-client",
                    present: || exec::find_program("mariadb").is_some(),
                },
            ],
            wheel: None,
            user: Some("mysql"),
            ports: &["main"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let port = instance.port("main")?;
        let data = init(instance)?;
        let args = [
            "--no-defaults".to_owned(),
            format!("--datadir={data}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={port}"),
            // Relative to the data folder: a full path could be longer than a socket's may be.
            "--socket=server.sock".to_owned(),
            "--pid-file=server.pid".to_owned(),
            "--log-bin=binlog".to_owned(),
            "--server-id=1".to_owned(),
            "--skip-name-resolve".to_owned(),
            // Not the system's: a server removes the temporary tables that it finds when it starts,
            // another's too.
            format!("--tmpdir={}", instance.folder()?.display()),
        ];
        instance.run(&Spec {
            role: "main".to_owned(),
            program: exec::find_program("mariadbd").context("mariadbd is not installed")?,
            args: args.into(),
            stop: Stop::Terminate,
        })?;
        instance.wait_for("answering", Duration::from_secs(60), || {
            sql(port, "root", "select 1").map(drop)
        })?;
        let make = format!(
            "create database if not exists {NAME}; \
             create user if not exists {NAME}@'127.0.0.1' identified by '{NAME}'; \
             grant all on *.* to {NAME}@'127.0.0.1'"
        );
        sql(port, "root", &make).map(drop)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let answer = sql(
            instance.port("main")?,
            NAME,
            &format!("use {NAME}; select 1"),
        )?;
        ensure!(answer.trim() == "1", "select 1 answers {answer}");
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let url = format!(
            "mysql://{NAME}:{NAME}@127.0.0.1:{}/{NAME}",
            instance.port("main")?
        );
        Ok(vec![("SEMEL_TEST_MARIADB_URL".to_owned(), url)])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let text = sql(instance.port("main")?, NAME, "select version()")?;
        Ok(format!(
            "MariaDB {}",
            text.split('-').next().unwrap_or_default().trim()
        ))
    }
}

/// Makes the data folder unless it is there; returns its path.
fn init(instance: &Instance<'_>) -> Result<String> {
    let data = instance.folder()?.join("data");
    if !data.exists() {
        instance.say("making the data folder");
        let beside = instance.folder()?.join("data.new");
        if beside.exists() {
            std::fs::remove_dir_all(&beside)?;
        }
        let program = exec::find_program("mariadb-install-db");
        let mut command =
            instance.command(program.context("mariadb-install-db is not installed")?)?;
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", beside.display()));
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.env("TMPDIR", instance.folder()?);
        exec::capture(&mut command)?;
        std::fs::rename(&beside, &data)?;
    }
    Ok(data.display().to_string())
}

fn sql(port: u16, user: &str, statement: &str) -> Result<String> {
    let mut command = Command::new("mariadb");
    command.args([
        "--no-defaults",
        "--protocol=tcp",
        "--host=127.0.0.1",
        "--connect-timeout=3",
    ]);
    command
        .arg(format!("--port={port}"))
        .arg(format!("--user={user}"));
    command.args(["--batch", "--skip-column-names", "--execute", statement]);
    if user != "root" {
        // In the environment rather than among the arguments, where any user could read it.
        command.env("MYSQL_PWD", NAME);
    }
    exec::capture_within(&mut command, Duration::from_secs(10))
}
