//! A Redis Cluster of six: three masters, a replica for each.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use semel_devservers::redis::{self, ask, field};

use super::redis::{SERVER, SETTINGS, SETTINGS_FILE, TOOLS, node};
use super::{Instance, Profile, Service};
use crate::exec;

const NODES: [(&str, &str); 6] = [
    ("node-1", "bus-1"),
    ("node-2", "bus-2"),
    ("node-3", "bus-3"),
    ("node-4", "bus-4"),
    ("node-5", "bus-5"),
    ("node-6", "bus-6"),
];

/// Slots are dealt out once; after that the nodes find each other by their own files.
#[derive(Debug)]
pub(crate) struct Cluster;

impl Service for Cluster {
    fn profile(&self) -> Profile {
        Profile {
            name: "redis-cluster",
            needs: &[],
            packages: &[SERVER, TOOLS],
            wheel: None,
            user: None,
            ports: &[
                "node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "bus-1", "bus-2",
                "bus-3", "bus-4", "bus-5", "bus-6",
            ],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let program = redis::program()?;
        for (role, bus) in NODES {
            let folder = instance.make_folder(role)?;
            // The bus port is named because the default, 10000 above, may belong to somebody else.
            let cluster = format!(
                "cluster-enabled yes\n\
                 cluster-config-file nodes.conf\n\
                 cluster-node-timeout 5000\n\
                 cluster-port {}\n",
                instance.port(bus)?
            );
            std::fs::write(folder.join(SETTINGS_FILE), SETTINGS.to_owned() + &cluster)?;
            instance.run(&node(instance, role, program.clone(), &[])?)?;
        }
        instance.wait_for("answering", Duration::from_secs(20), || {
            ports(instance)?.into_iter().try_for_each(redis::ready)
        })?;
        form(instance)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let (mut masters, mut online) = (0, 0);
        for port in ports(instance)? {
            let cluster = ask(port, &["cluster", "info"])?;
            let state = field(&cluster, "cluster_state");
            ensure!(
                state == Some("ok"),
                "node {port} says the cluster is {state:?}"
            );
            let known = field(&cluster, "cluster_known_nodes");
            ensure!(known == Some("6"), "node {port} knows {known:?} nodes");
            let replication = ask(port, &["info", "replication"])?;
            if field(&replication, "role") == Some("master") {
                masters += 1;
                online += replication.matches("state=online").count();
            }
        }
        // Without this a failover is refused, or loses acknowledged writes.
        ensure!(
            masters == 3 && online == 3,
            "{masters} masters with {online} replicas online"
        );
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let urls: Vec<String> = ports(instance)?.into_iter().map(redis::url).collect();
        Ok(vec![(
            "SEMEL_TEST_REDIS_CLUSTER_URLS".to_owned(),
            urls.join(","),
        )])
    }

    fn version(&self, _instance: &Instance<'_>) -> Result<String> {
        redis::version(&redis::program()?)
    }
}

fn ports(instance: &Instance<'_>) -> Result<Vec<u16>> {
    NODES.iter().map(|(role, _)| instance.port(role)).collect()
}

/// Deals out the slots, unless that was done before.
fn form(instance: &Instance<'_>) -> Result<()> {
    let ports = ports(instance)?;
    let assigned = ask(ports[0], &["cluster", "info"])?;
    if field(&assigned, "cluster_slots_assigned") == Some("16384") {
        return Ok(());
    }
    instance.say("dealing out the slots");
    let mut command = Command::new("redis-cli");
    command.args(["--cluster", "create"]);
    command.args(ports.iter().map(|port| format!("127.0.0.1:{port}")));
    command.args(["--cluster-replicas", "1", "--cluster-yes"]);
    exec::capture_within(&mut command, Duration::from_secs(60)).map(drop)
}
