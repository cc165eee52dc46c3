//! Redis with a watch: a master, two replicas, three sentinels.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use semel_devservers::redis::{self, ask, field};

use super::redis::{SERVER, SETTINGS, SETTINGS_FILE, TOOLS, node};
use super::{Instance, Profile, Service};

/// The name under which the sentinels know the master.
const MASTER_NAME: &str = "semel";

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const SENTINELS: [&str; 3] = ["sentinel-1", "sentinel-2", "sentinel-3"];

/// Which of the nodes is the master changes with every failover, here as in production.
#[derive(Debug)]
pub(crate) struct Sentinel;

impl Service for Sentinel {
    fn profile(&self) -> Profile {
        Profile {
            name: "redis-sentinel",
            needs: &[],
            packages: &[SERVER, TOOLS],
            wheel: None,
            user: None,
            ports: &[
                "sentinel-1",
                "sentinel-2",
                "sentinel-3",
                "node-1",
                "node-2",
                "node-3",
            ],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let first = instance.port(NODES[0])?;
        for role in NODES {
            let replica = if role == NODES[0] {
                String::new()
            } else {
                format!("replicaof 127.0.0.1 {first}\n")
            };
            instance.make_folder(role)?;
            let settings = SETTINGS.to_owned() + &replica;
            run(instance, role, &settings, &[])?;
        }
        // Sentinels that meet a master with its replicas know them at once; later they ask only
        // every ten seconds.
        if !instance.folder()?.join(SENTINELS[0]).exists() {
            instance.wait_for("replicated", Duration::from_secs(30), || replicated(first))?;
        }
        for role in SENTINELS {
            instance.make_folder(role)?;
            let settings = sentinel_settings(first);
            run(instance, role, &settings, &["--sentinel"])?;
        }
        Ok(())
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let mut masters = Vec::new();
        for role in SENTINELS {
            let port = instance.port(role)?;
            let view = ask(port, &["sentinel", "master", MASTER_NAME])?;
            ensure!(
                pair(&view, "flags") == Some("master"),
                "{role} does not see a master"
            );
            ensure!(
                pair(&view, "num-slaves") == Some("2"),
                "{role} does not know both replicas"
            );
            let others = pair(&view, "num-other-sentinels");
            ensure!(
                others == Some("2"),
                "{role} does not know both other sentinels"
            );
            masters.push(
                pair(&view, "port")
                    .context("no port of the master")?
                    .parse::<u16>()?,
            );
        }
        let master = masters[0];
        ensure!(
            masters.iter().all(|port| *port == master),
            "the sentinels disagree"
        );
        replicated(master)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let urls: Result<Vec<String>> = SENTINELS
            .iter()
            .map(|role| Ok(redis::url(instance.port(role)?)))
            .collect();
        Ok(vec![
            ("SEMEL_TEST_REDIS_SENTINEL_URLS".to_owned(), urls?.join(",")),
            (
                "SEMEL_TEST_REDIS_SENTINEL_MASTER".to_owned(),
                MASTER_NAME.to_owned(),
            ),
        ])
    }

    fn version(&self, _instance: &Instance<'_>) -> Result<String> {
        redis::version(&redis::program()?)
    }
}

/// Starts one of the six. Its settings are written once only: the sentinels keep their view of the
/// world in these files, and write the new role of a node into its own.
fn run(instance: &mut Instance<'_>, role: &str, settings: &str, more: &[&str]) -> Result<()> {
    let config = instance.folder()?.join(role).join(SETTINGS_FILE);
    if !config.exists() {
        std::fs::write(&config, settings)?;
    }
    instance.run(&node(instance, role, redis::program()?, more)?)
}

/// A failover before both replicas are online would lose acknowledged writes.
fn replicated(master: u16) -> Result<()> {
    let replication = ask(master, &["info", "replication"])?;
    ensure!(
        field(&replication, "role") == Some("master"),
        "the master is none yet"
    );
    let online = replication.matches("state=online").count();
    ensure!(online == 2, "{online} of 2 replicas online");
    Ok(())
}

/// Short times, so that a test of a failover takes seconds.
fn sentinel_settings(master: u16) -> String {
    format!(
        "sentinel monitor {MASTER_NAME} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {MASTER_NAME} 5000\n\
         sentinel failover-timeout {MASTER_NAME} 5000\n\
         sentinel parallel-syncs {MASTER_NAME} 1\n"
    )
}

/// The line after the line `name`: the shape in which the client prints a list of pairs.
fn pair<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.lines().map(str::trim_end);
    lines.find(|line| *line == name)?;
    lines.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_a_line_and_the_next() {
        let view = "name\nsemel\nflags\nmaster\nnum-slaves\n2\n";
        assert_eq!(pair(view, "flags"), Some("master"));
        assert_eq!(pair(view, "num-slaves"), Some("2"));
        assert_eq!(pair(view, "port"), None);
    }
}
