//! A master, its replica and three sentinels on machines of their own, with clients on two more.
//! The machines are cut from each other.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::proxy::Proxy;

use super::network::Network;
use super::node::{Node, REDIS, SENTINEL, until};
use super::{Backend, Shared};
use crate::clock::{pass, tick};
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::verdict::Strictness;

/// The machines: two have a Redis and a sentinel, one a sentinel, and the last two clients.
const SERVERS: usize = 3;
const CLIENTS: [usize; 2] = [3, 4];

/// Whether callers wait for the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Waits,
    /// What the replica has not received may be lost, and is counted.
    Loses,
    /// Seeded flaw: nobody waits, and nothing may be lost.
    Flawed,
}

/// The five machines.
pub(super) struct Split {
    nodes: Vec<Node>,
    sentinels: Vec<Node>,
    network: Network,
    level: Level,
    /// The number of the last failover that is written down, and when it was read.
    noted: (u64, u64),
}

impl Split {
    pub(super) async fn start(level: Level) -> Result<Self> {
        let network = Network::new(SERVERS + CLIENTS.len())?;
        let master = Network::address(0).to_string();
        let plain = ["--save", "", "--repl-diskless-sync-delay", "0"];
        let port = REDIS.to_string();
        let follow = ["--replicaof", &master, &port];
        let follow = [&plain[..], &follow[..]].concat();
        let nodes = vec![
            Node::start(network.namespace(0), REDIS, "", &plain).await?,
            Node::start(network.namespace(1), REDIS, "", &follow).await?,
        ];
        until("a replica online", || {
            nodes[0].replication().contains("state=online")
        })
        .await?;
        let settings = format!(
            "sentinel monitor semel {master} {REDIS} 2\n\
             sentinel down-after-milliseconds semel 500\n\
             sentinel failover-timeout semel 3000\n"
        );
        let mut sentinels = Vec::new();
        for machine in 0..SERVERS {
            let namespace = network.namespace(machine);
            sentinels.push(Node::start(namespace, SENTINEL, &settings, &["--sentinel"]).await?);
        }
        let mut this = Self {
            nodes,
            sentinels,
            network,
            level,
            noted: (0, 0),
        };
        this.whole().await?;
        this.noted = (this.epoch()?, tick());
        Ok(this)
    }

    /// The number of the last failover, by the sentinel of the machine without a Redis.
    fn epoch(&self) -> Result<u64> {
        let said = self.sentinels[2].ask(&["SENTINEL", "MASTER", "semel"])?;
        let mut lines = said.lines().skip_while(|line| *line != "config-epoch");
        Ok(lines.nth(1).context("no config-epoch")?.parse()?)
    }

    /// Writes down failovers that Sentinel made by itself, because a master got no processor for
    /// half a second. They may lose records, too.
    fn note_own_failovers(&mut self, windows: &Shared) -> Result<()> {
        if self.level != Level::Loses {
            return Ok(());
        }
        let (epoch, since) = self.noted;
        self.noted = (self.epoch()?, tick());
        if self.noted.0 > epoch {
            eprintln!("Sentinel replaced the master by itself");
            windows.lock().failovers.push((since, tick()));
        }
        Ok(())
    }

    /// Which of the two is the master, by the sentinel of some machine.
    fn master_by(&self, sentinel: usize) -> Result<usize> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "semel"];
        let said = self.sentinels[sentinel].ask(&ask)?;
        let address = said.lines().next().context("no address")?;
        let is_it = |machine: &usize| Network::address(*machine).to_string() == address;
        (0..self.nodes.len())
            .find(is_it)
            .context("another's address")
    }

    /// One follows the other, and all sentinels agree on it and see each other.
    async fn whole(&self) -> Result<()> {
        let is = || {
            let Ok(master) = self.master_by(0) else {
                return false;
            };
            let sees = |sentinel: usize| {
                let said = self.sentinels[sentinel].ask(&["SENTINEL", "MASTER", "semel"]);
                let said = said.unwrap_or_default();
                self.master_by(sentinel).is_ok_and(|seen| seen == master)
                    && said.contains("flags\nmaster\n")
                    && said.contains("num-other-sentinels\n2")
            };
            let info = self.nodes[master].replication();
            info.contains("role:master") && info.contains("state=online") && (0..SERVERS).all(sees)
        };
        until("a replica online, known to three sentinels", is).await
    }

    /// Waits until the majority has made the other one the master.
    async fn promoted(&self, old: usize) -> Result<()> {
        let new = 1 - old;
        until("the replica is the master", || {
            self.nodes[new].is_master() && self.master_by(2).is_ok_and(|master| master == new)
        })
        .await
    }

    /// The master and half of the clients are on one side, everybody else on the other, which makes
    /// itself a master.
    async fn split(&self, rng: &mut StdRng) -> Result<()> {
        let old = self.master_by(2)?;
        let clients = CLIENTS[rng.random_range(0..CLIENTS.len())];
        self.network.cut(&[old, clients])?;
        self.promoted(old).await?;
        pass(Duration::from_millis(rng.random_range(200..2_500))).await;
        self.network.heal()?;
        // The old master is one for moments longer, until the sentinels tell it otherwise.
        self.whole().await
    }

    /// The replica is cut off while callers go on; then the master's machine is, and the replica
    /// takes over with what it has.
    async fn lose(&mut self, rng: &mut StdRng, windows: &Shared) -> Result<()> {
        let old = self.master_by(2)?;
        let new = 1 - old;
        let from = tick();
        self.network.cut(&[new])?;
        pass(Duration::from_millis(rng.random_range(200..800))).await;
        // First from everybody, or the two would meet on the other side.
        self.network.unplug(old)?;
        self.network.heal_but(&[old])?;
        self.promoted(old).await?;
        // Nobody may find the old one a master when it is back: its history would go on beside the
        // new one's.
        let (host, port) = (Network::address(new).to_string(), REDIS.to_string());
        self.nodes[old].ask(&["REPLICAOF", &host, &port])?;
        // Sentinel does the same: clients that stay connected would read records that are about to
        // be discarded.
        self.nodes[old].ask(&["CLIENT", "KILL", "TYPE", "normal"])?;
        // It must not be elected before it has caught up: it would bring back records that count as
        // lost.
        self.nodes[old].ask(&["CONFIG", "SET", "replica-priority", "0"])?;
        self.network.heal()?;
        self.noted = (self.epoch()?, tick());
        windows.lock().failovers.push((from, self.noted.1));
        self.whole().await?;
        self.nodes[old].ask(&["CONFIG", "SET", "replica-priority", "100"])?;
        Ok(())
    }

    async fn cut_for(&self, machine: usize, time: Duration) -> Result<()> {
        self.network.cut(&[machine])?;
        pass(time).await;
        self.network.heal()?;
        self.whole().await
    }
}

impl Backend for Split {
    fn place(&self) -> WorkerPlace {
        let host = |machine| format!("{}:{SENTINEL}", Network::address(machine));
        let hosts: Vec<String> = (0..SERVERS).map(host).collect();
        let waits = self.level == Level::Waits;
        let durability = if waits { "?durability=wait:1" } else { "" };
        WorkerPlace::Machines {
            url: format!("redis+sentinel://{}/semel{durability}", hosts.join(",")),
            namespaces: CLIENTS.map(|one| self.network.namespace(one)).into(),
        }
    }

    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
            margin: Duration::ZERO,
            may_lose: self.level == Level::Loses,
        }
    }

    fn ways(&self) -> &[Proxy] {
        &[]
    }

    fn kinds(&self) -> Vec<Kind> {
        match self.level {
            Level::Waits => vec![Kind::NetworkSplit, Kind::ReplicaCut, Kind::Partition],
            Level::Loses => vec![Kind::FailoverBehind, Kind::Partition],
            Level::Flawed => vec![Kind::NetworkSplit],
        }
    }

    fn end_round(&mut self, windows: &Shared) -> Result<()> {
        self.note_own_failovers(windows)
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            self.note_own_failovers(windows)?;
            let a_while = Duration::from_millis(rng.random_range(300..1_600));
            match kind {
                Kind::NetworkSplit => self.split(rng).await?,
                Kind::FailoverBehind => self.lose(rng, windows).await?,
                Kind::ReplicaCut => self.cut_for(1 - self.master_by(2)?, a_while).await?,
                _ => {
                    let clients = CLIENTS[rng.random_range(0..CLIENTS.len())];
                    self.cut_for(clients, a_while).await?;
                }
            }
            Ok(1)
        })
    }
}
