//! `cargo xtask services`: real servers for the tests, private to this clone.
//!
//! Everything listens on the loopback address only, keeps its data under `target/services`, and
//! runs until `down`. To add a service, write one type that implements [`Service`] and name it in
//! [`all`].

mod azurite;
mod dashboard;
mod faketime;
mod http;
mod install;
mod instance;
mod kubernetes;
mod mariadb;
mod mcp;
mod nats;
mod pgbouncer;
mod ports;
mod postgres;
mod postgres_sync;
mod process;
mod prometheus;
mod rabbitmq;
mod recipes;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod seaweed;
mod state;
mod status;
mod unfit;
mod up;

use std::fmt::Debug;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use crate::workspace::Workspace;
use install::Package;
pub(crate) use install::{Wheel, fetch};
use instance::Instance;
pub(crate) use recipes::{folder, for_node, for_python, install};
use state::State;

/// What a service is made of, before it is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    /// Services that must be up before this one.
    pub(crate) needs: &'static [&'static str],
    pub(crate) packages: &'static [Package],
    pub(crate) wheel: Option<&'static Wheel>,
    /// The user to become when root starts a server that refuses to run as root.
    pub(crate) user: Option<&'static str>,
    /// One free port is kept for each of these roles; the first is the address that is shown. None,
    /// where tests start the program themselves.
    pub(crate) ports: &'static [&'static str],
}

/// One service. Ending it needs no method: the processes are recorded as they start.
pub(crate) trait Service: Debug {
    fn profile(&self) -> Profile;

    /// Starts what does not run. May be called again at any time, also after a crash.
    fn start(&self, instance: &mut Instance<'_>) -> Result<()>;

    /// Says what is missing until the service can really be used; an open port is not enough.
    fn healthy(&self, instance: &Instance<'_>) -> Result<()>;

    /// What a test needs to know to use it.
    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>>;

    fn version(&self, instance: &Instance<'_>) -> Result<String>;
}

/// Every service, in the order in which they are started.
fn all() -> Vec<Box<dyn Service>> {
    vec![
        Box::new(redis::Standalone::redis()),
        Box::new(redis::Standalone::valkey()),
        Box::new(redis_sentinel::Sentinel),
        Box::new(redis_cluster::Cluster),
        Box::new(postgres::Postgres),
        Box::new(postgres_sync::PostgresSync),
        Box::new(pgbouncer::PgBouncer),
        Box::new(mariadb::MariaDb),
        Box::new(seaweed::Seaweed),
        Box::new(unfit::Unfit),
        Box::new(azurite::Azurite),
        Box::new(nats::Nats),
        Box::new(rabbitmq::RabbitMq),
        Box::new(recipes::Recipes),
        Box::new(kubernetes::Kubernetes),
        Box::new(mcp::Mcp),
        Box::new(dashboard::Dashboard),
        Box::new(prometheus::Prometheus),
        Box::new(faketime::FakeTime),
    ]
}

/// The services of these names, with those that they need; all of them when no name is given.
fn choose(names: &[String]) -> Result<Vec<Box<dyn Service>>> {
    let mut services = all();
    if names.is_empty() {
        return Ok(services);
    }
    let known: Vec<&str> = services
        .iter()
        .map(|service| service.profile().name)
        .collect();
    let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        bail!("no service {unknown}; there are: {}", known.join(", "));
    }
    for service in &services {
        let profile = service.profile();
        if wanted.contains(&profile.name) {
            wanted.extend(profile.needs);
        }
    }
    services.retain(|service| wanted.contains(&service.profile().name));
    Ok(services)
}

/// What to do with the services.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Install what is missing, start what does not run, print the variables for the tests.
    Up {
        /// Names; all of them when none is given.
        names: Vec<String>,
    },
    /// End the servers that `up` started; their data and ports stay.
    Down {
        /// Names; all of them when none is given.
        names: Vec<String>,
        /// Remove their data too and forget their ports.
        #[arg(long)]
        wipe: bool,
    },
    /// Show what runs.
    Status,
}

/// Runs one action.
pub(crate) fn run(workspace: &Workspace, action: &Action) -> Result<()> {
    let mut state = State::open(workspace.path("target/services"))?;
    match action {
        Action::Up { names } => {
            let outcome = up::up(&choose(names)?, &mut state);
            status::show(workspace, &mut state, status::Stream::Progress)?;
            outcome?;
            // Only this goes to the standard output, so that a shell can evaluate it.
            print!("{}", state.exports());
            Ok(())
        }
        Action::Down { names, wipe } => {
            down(names, *wipe, &mut state)?;
            status::show(workspace, &mut state, status::Stream::Progress)?;
            Ok(())
        }
        Action::Status => {
            let broken = status::show(workspace, &mut state, status::Stream::Output)?;
            if !broken.is_empty() {
                bail!(
                    "not healthy: {}; `cargo xtask services up` restarts",
                    broken.join(", ")
                );
            }
            Ok(())
        }
    }
}

/// The variables that tell the tests where the servers are, as `up` left them.
pub(crate) fn variables(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let path = workspace.path("target/services/env");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Ok(text.lines().filter_map(line).collect())
}

fn down(names: &[String], wipe: bool, state: &mut State) -> Result<()> {
    // Only what was named: ending a service must not end those that it needs.
    let mut services = choose(names)?;
    services.retain(|service| {
        names.is_empty() || names.iter().any(|name| name == service.profile().name)
    });
    for service in services.iter().rev() {
        let name = service.profile().name;
        let Some(entry) = state.get(name).cloned() else {
            continue;
        };
        let alive = entry
            .processes
            .values()
            .filter(|record| record.alive())
            .count();
        if alive > 0 {
            eprintln!("{name}: ending {alive} process(es)");
        }
        for record in entry.processes.values() {
            record.end()?;
        }
        state.change(name, |entry| {
            entry.processes.clear();
            entry.wanted = false;
        })?;
        if wipe {
            // A folder under the temp folder may have been cleared away by the system.
            if entry.folder.exists() {
                std::fs::remove_dir_all(&entry.folder)?;
            }
            state.forget(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(services: &[Box<dyn Service>]) -> Vec<&'static str> {
        services
            .iter()
            .map(|service| service.profile().name)
            .collect()
    }

    #[test]
    fn what_a_service_needs_comes_with_it_and_before_it() {
        let chosen = choose(&["pgbouncer".to_owned()]).unwrap();
        assert_eq!(names(&chosen), ["postgres", "pgbouncer"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = choose(&["kafka".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("kafka") && error.contains("redis-cluster"),
            "{error}"
        );
    }

    #[test]
    fn services_have_unique_names_and_every_server_a_port() {
        let mut seen = Vec::new();
        for service in all() {
            let profile = service.profile();
            assert!(!seen.contains(&profile.name), "{} twice", profile.name);
            // What tests start themselves is only installed.
            let installed = [
                "dashboard",
                "faketime",
                "kubernetes",
                "mcp",
                "prometheus",
                "recipes",
                "s3-unfit",
            ];
            let is_server = !installed.contains(&profile.name);
            assert_eq!(!profile.ports.is_empty(), is_server, "{}", profile.name);
            assert!(
                profile.needs.iter().all(|need| seen.contains(need)),
                "started too early"
            );
            seen.push(profile.name);
        }
    }
}
