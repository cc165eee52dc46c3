//! A Redis Cluster of six: three masters, a replica for each. `durability=wait:1`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::{RedisServer, free_port};
use semel_testkit::proxy::Proxy;

use super::{Backend, Shared, faketime};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::place::WorkerPlace;

/// The six.
pub(super) struct Cluster {
    nodes: Vec<RedisServer>,
}

const ASK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: usize = 1_200;
/// How often to ask whether a master has handed over: the cluster itself gives up after five
/// seconds.
const HAND_OVER: usize = 200;

impl Cluster {
    pub(super) async fn start() -> Result<Self> {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let bus = free_port().to_string();
            let settings = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1500",
                "--repl-diskless-sync-delay",
                "0",
            ];
            nodes.push(RedisServer::start(&settings).await);
        }
        let mut create = Command::new("redis-cli");
        create.args([
            "--cluster",
            "create",
            "--cluster-replicas",
            "1",
            "--cluster-yes",
        ]);
        create.args(
            nodes
                .iter()
                .map(|node| format!("127.0.0.1:{}", node.port())),
        );
        let made = create.output().context("redis-cli")?;
        let said = String::from_utf8_lossy(&made.stdout);
        ensure!(made.status.success(), "no cluster: {said}");
        let cluster = Self { nodes };
        cluster.whole().await?;
        Ok(cluster)
    }

    fn info(&self, node: usize) -> String {
        self.nodes[node]
            .try_ask(&["INFO", "replication"])
            .unwrap_or_default()
    }

    fn masters(&self) -> Vec<usize> {
        let is_master = |node: &usize| self.info(*node).contains("role:master");
        (0..self.nodes.len()).filter(is_master).collect()
    }

    /// The replica of a master.
    fn replica_of(&self, master: usize) -> Option<usize> {
        let port = format!("master_port:{}\r", self.nodes[master].port());
        let follows = |node: &usize| {
            let info = self.info(*node);
            info.contains("role:slave") && info.contains(&port)
        };
        (0..self.nodes.len()).find(follows)
    }

    async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) -> Result<()> {
        for _ in 0..PATIENCE {
            if is(self) {
                return Ok(());
            }
            pass(ASK_EVERY).await;
        }
        anyhow::bail!("never so: {what}")
    }

    /// All know each other, and each master has its replica.
    async fn whole(&self) -> Result<()> {
        self.until("three masters, each with a replica online", |this| {
            let ok = |node: &RedisServer| {
                node.try_ask(&["CLUSTER", "INFO"])
                    .is_ok_and(|info| info.contains("cluster_state:ok"))
            };
            let masters = this.masters();
            let online = |master: &usize| this.info(*master).contains("state=online");
            masters.len() == 3 && masters.iter().all(online) && this.nodes.iter().all(ok)
        })
        .await
    }

    async fn fail_over(&mut self, rng: &mut StdRng) -> Result<()> {
        let masters = self.masters();
        let old = masters[rng.random_range(0..masters.len())];
        let Some(new) = self.replica_of(old) else {
            return Ok(());
        };
        self.nodes[old].kill();
        self.until("the replica is a master", |this| {
            this.info(new).contains("role:master")
        })
        .await?;
        self.nodes[old].restart().await;
        self.whole().await
    }

    /// A master hands over to its replica; where it doesn't within seconds, the cluster has given
    /// that up.
    async fn planned(&self, rng: &mut StdRng) -> Result<u64> {
        let masters = self.masters();
        let old = masters[rng.random_range(0..masters.len())];
        let Some(new) = self.replica_of(old) else {
            return Ok(0);
        };
        self.nodes[new].try_ask(&["CLUSTER", "FAILOVER"])?;
        let mut done = false;
        for _ in 0..HAND_OVER {
            pass(ASK_EVERY).await;
            done = self.info(new).contains("role:master");
            if done {
                break;
            }
        }
        self.whole().await?;
        Ok(u64::from(done))
    }

    /// Some slots go from one master to another, key by key, while callers use them.
    async fn migrate(&self, rng: &mut StdRng) -> Result<u64> {
        let masters = self.masters();
        let from = rng.random_range(0..masters.len());
        let to = (from + 1) % masters.len();
        let (from, to) = (&self.nodes[masters[from]], &self.nodes[masters[to]]);
        let (from_id, to_id) = (
            from.try_ask(&["CLUSTER", "MYID"])?,
            to.try_ask(&["CLUSTER", "MYID"])?,
        );
        let port = to.port().to_string();
        let mut moved = 0;
        for _ in 0..4 {
            let Some(slot) = slot_of(from)? else { break };
            to.try_ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
            from.try_ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
            loop {
                let keys = from.try_ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?;
                if keys.is_empty() {
                    break;
                }
                for key in keys.lines() {
                    // Gone meanwhile is as good.
                    let _ = from.try_ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
                }
                pass(Duration::from_millis(5)).await;
            }
            to.try_ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])?;
            for node in &masters {
                let _ = self.nodes[*node].try_ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
            }
            moved += 1;
        }
        Ok(moved)
    }
}

/// The slot of some record that a server has.
fn slot_of(server: &RedisServer) -> Result<Option<String>> {
    let key = server.try_ask(&["RANDOMKEY"])?;
    if key.is_empty() {
        return Ok(None);
    }
    Ok(Some(server.try_ask(&["CLUSTER", "KEYSLOT", &key])?))
}

impl Backend for Cluster {
    fn place(&self) -> WorkerPlace {
        let hosts: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        let url = format!("redis+cluster://{}?durability=wait:1", hosts.join(","));
        WorkerPlace::Processes {
            urls: vec![url],
            skew: faketime::library(),
        }
    }

    fn ways(&self) -> &[Proxy] {
        &[]
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::Failover, Kind::PlannedFailover, Kind::SlotMigration]
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        _: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            match kind {
                Kind::Failover => self.fail_over(rng).await?,
                Kind::PlannedFailover => return self.planned(rng).await,
                _ => return self.migrate(rng).await,
            }
            Ok(1)
        })
    }
}
