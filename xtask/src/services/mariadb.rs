//! MariaDB, one server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use semel_devservers::mariadb::{self, NAME, USER};

use super::install::Package;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};
use crate::exec;

const PASSWORD: &str = "semel";

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
            user: Some(USER),
            ports: &["main"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let port = instance.port("main")?;
        let data = init(instance)?;
        // Its binary log is on, as any server with replicas has it.
        let settings = ["log-bin=binlog", "server-id=1"];
        let launch = mariadb::server(&data, instance.folder()?, port, &settings)?;
        instance.run(&Spec::new("main", launch, Stop::Terminate))?;
        instance.wait_for("answering", Duration::from_secs(60), || {
            sql(port, "root", "select 1").map(drop)
        })?;
        let make = format!(
            "create database if not exists {NAME}; \
             create user if not exists {NAME}@'127.0.0.1' identified by '{PASSWORD}'; \
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
        let url = mariadb::url(
            ([127, 0, 0, 1], instance.port("main")?).into(),
            Some(PASSWORD),
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
fn init(instance: &Instance<'_>) -> Result<PathBuf> {
    let data = instance.folder()?.join("data");
    if !data.exists() {
        instance.say("making the data folder");
        let beside = instance.folder()?.join("data.new");
        if beside.exists() {
            std::fs::remove_dir_all(&beside)?;
        }
        mariadb::init(&beside, instance.folder()?)?;
        std::fs::rename(&beside, &data)?;
    }
    Ok(data)
}

fn sql(port: u16, user: &str, statement: &str) -> Result<String> {
    let mut command = mariadb::client(port, user, statement);
    if user != "root" {
        // In the environment rather than among the arguments, where any user could read it.
        command.env("MYSQL_PWD", PASSWORD);
    }
    exec::capture_within(&mut command, Duration::from_secs(10))
}
