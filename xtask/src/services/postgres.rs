//! PostgreSQL, one server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use semel_devservers::postgres::{self, program};
pub(crate) use semel_devservers::postgres::{NAME, USER, sql, version};

use super::install::Package;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service};

pub(crate) const PACKAGE: Package = Package {
    name: "postgresql",
    present: || program("postgres").is_ok(),
};

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
            user: Some(USER),
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

/// Makes the data folder `role` unless it is there.
pub(crate) fn init(instance: &Instance<'_>, role: &str) -> Result<()> {
    let data = instance.folder()?.join(role);
    if data.exists() {
        return Ok(());
    }
    instance.say("making the data folder");
    let beside = fresh(instance, role)?;
    postgres::init(&beside)?;
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

/// The server for the data folder `role`.
pub(crate) fn server(instance: &Instance<'_>, role: &str, port: u16) -> Result<Spec> {
    let data = instance.folder()?.join(role);
    let launch = postgres::server(&data, port, &["max_connections=200"])?;
    Ok(Spec::new(role, launch, Stop::Interrupt))
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

pub(crate) fn url(port: u16) -> String {
    postgres::url(([127, 0, 0, 1], port).into())
}
