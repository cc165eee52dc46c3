//! A cluster of six machines, three masters and a replica for each, with clients on two more. The
//! machines are cut from each other. `durability=wait:1`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::proxy::Proxy;

use super::network::Network;
use super::node::{Node, REDIS, until};
use super::{Backend, Shared};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::place::WorkerPlace;

const SERVERS: usize = 6;
const CLIENTS: [usize; 2] = [6, 7];

/// The eight machines.
pub(super) struct Split {
    nodes: Vec<Node>,
    network: Network,
}

impl Split {
    pub(super) async fn start() -> Result<Self> {
        let network = Network::new(SERVERS + CLIENTS.len())?;
        let settings = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1500",
            "--repl-diskless-sync-delay",
            "0",
            "--save",
            "",
        ];
        let mut nodes = Vec::new();
        for machine in 0..SERVERS {
            nodes.push(Node::start(network.namespace(machine), REDIS, "", &settings).await?);
        }
        let words = ["--cluster-replicas", "1", "--cluster-yes"];
        let mut create = nodes[0].cli(&["--cluster", "create"]);
        create.args(hosts()).args(words);
        let made = create.output().context("redis-cli")?;
        let said = String::from_utf8_lossy(&made.stdout);
        ensure!(made.status.success(), "no cluster: {said}");
        let this = Self { nodes, network };
        this.whole().await?;
        Ok(this)
    }

    fn masters(&self) -> Vec<usize> {
        let is_master = |node: &usize| self.nodes[*node].is_master();
        (0..SERVERS).filter(is_master).collect()
    }

    fn replica_of(&self, master: usize) -> Option<usize> {
        let host = format!("master_host:{}\r", Network::address(master));
        let follows = |node: &usize| {
            let info = self.nodes[*node].replication();
            info.contains("role:slave") && info.contains(&host)
        };
        (0..SERVERS).find(follows)
    }

    /// All know each other, and each master has its replica.
    async fn whole(&self) -> Result<()> {
        until("three masters, each with a replica online", || {
            let ok = |node: &Node| {
                let info = node.ask(&["CLUSTER", "INFO"]);
                info.is_ok_and(|info| info.contains("cluster_state:ok"))
            };
            let infos: Vec<String> = self.nodes.iter().map(Node::replication).collect();
            let masters = infos.iter().filter(|info| info.contains("role:master"));
            let online = masters.clone().all(|info| info.contains("state=online"));
            masters.count() == 3 && online && self.nodes.iter().all(ok)
        })
        .await
    }

    /// A master and half of the clients are on one side, everybody else on the other, where its
    /// replica takes over.
    async fn split(&self, rng: &mut StdRng) -> Result<u64> {
        let masters = self.masters();
        let old = masters[rng.random_range(0..masters.len())];
        let Some(new) = self.replica_of(old) else {
            return Ok(0);
        };
        let clients = CLIENTS[rng.random_range(0..CLIENTS.len())];
        self.network.cut(&[old, clients])?;
        until("the replica is a master", || self.nodes[new].is_master()).await?;
        pass(Duration::from_millis(rng.random_range(100..1_500))).await;
        self.network.heal()?;
        self.whole().await?;
        Ok(1)
    }

    async fn cut_for(&self, machine: usize, time: Duration) -> Result<()> {
        self.network.cut(&[machine])?;
        pass(time).await;
        self.network.heal()?;
        self.whole().await
    }
}

fn hosts() -> Vec<String> {
    let host = |machine| format!("{}:{REDIS}", Network::address(machine));
    (0..SERVERS).map(host).collect()
}

impl Backend for Split {
    fn place(&self) -> WorkerPlace {
        WorkerPlace::Machines {
            url: format!("redis+cluster://{}?durability=wait:1", hosts().join(",")),
            namespaces: CLIENTS.map(|one| self.network.namespace(one)).into(),
        }
    }

    fn ways(&self) -> &[Proxy] {
        &[]
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::NetworkSplit, Kind::ReplicaCut, Kind::Partition]
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        _: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let a_while = Duration::from_millis(rng.random_range(300..1_600));
            match kind {
                Kind::NetworkSplit => return self.split(rng).await,
                Kind::ReplicaCut => {
                    let masters = self.masters();
                    let replicas: Vec<usize> = (0..SERVERS)
                        .filter(|node| !masters.contains(node))
                        .collect();
                    let replica = replicas[rng.random_range(0..replicas.len())];
                    self.cut_for(replica, a_while).await?;
                }
                _ => {
                    let clients = CLIENTS[rng.random_range(0..CLIENTS.len())];
                    self.cut_for(clients, a_while).await?;
                }
            }
            Ok(1)
        })
    }
}
