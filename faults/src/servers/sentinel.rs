//! A master, a replica and a sentinel, which decides who is the master. `durability=wait:1`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::Proxy;

use super::{Backend, Shared, faketime};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::place::WorkerPlace;

/// The three servers.
pub(super) struct SentinelSetup {
    nodes: Vec<RedisServer>,
    sentinel: RedisServer,
}

/// Asks every so long, and at most so often.
const ASK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: usize = 1_200;

impl SentinelSetup {
    pub(super) async fn start() -> Result<Self> {
        let master = RedisServer::start(&["--repl-diskless-sync-delay", "0"]).await;
        let port = master.port().to_string();
        let follow = [
            "--replicaof",
            "127.0.0.1",
            &port,
            "--repl-diskless-sync-delay",
            "0",
        ];
        let replica = RedisServer::start(&follow).await;
        master.until(&["INFO", "replication"], "state=online").await;
        let settings = format!(
            "sentinel monitor semel 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds semel 500\n\
             sentinel failover-timeout semel 3000\n"
        );
        let program = Path::new("redis-server");
        let sentinel = RedisServer::start_as(program, &settings, &["--sentinel"]).await;
        sentinel
            .until(&["SENTINEL", "MASTER", "semel"], "num-slaves\n1")
            .await;
        Ok(Self {
            nodes: vec![master, replica],
            sentinel,
        })
    }

    /// Which of the two is the master, by the sentinel.
    fn master(&self) -> Result<usize> {
        let said = self
            .sentinel
            .try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "semel"])?;
        let port = said.lines().nth(1).context("no address")?.to_owned();
        let is_it = |node: &RedisServer| node.port().to_string() == port;
        self.nodes
            .iter()
            .position(is_it)
            .context("another's address")
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

    /// Both are there again, and one follows the other.
    async fn whole(&self) -> Result<()> {
        self.until("a replica online, known to the sentinel", |this| {
            let Ok(master) = this.master() else {
                return false;
            };
            let info = this.nodes[master].try_ask(&["INFO", "replication"]);
            let online =
                |info: &String| info.contains("role:master") && info.contains("state=online");
            let known = this.sentinel.try_ask(&["SENTINEL", "MASTER", "semel"]);
            let known = known.is_ok_and(|known| known.contains("flags\nmaster\n"));
            info.is_ok_and(|info| online(&info)) && known
        })
        .await
    }

    /// The master dies; the sentinel makes the other one the master; the dead one comes back as its
    /// replica.
    async fn fail_over(&mut self, dead_for: Duration) -> Result<()> {
        let old = self.master()?;
        let new = 1 - old;
        self.nodes[old].kill();
        let promoted = |this: &Self| {
            let info = this.nodes[new].try_ask(&["INFO", "replication"]);
            this.master().is_ok_and(|master| master == new)
                && info.is_ok_and(|info| info.contains("role:master"))
        };
        self.until("the replica is the master", promoted).await?;
        pass(dead_for).await;
        self.nodes[old].restart().await;
        let port = self.nodes[new].port().to_string();
        self.nodes[old].try_ask(&["REPLICAOF", "127.0.0.1", &port])?;
        self.whole().await
    }

    async fn planned(&self) -> Result<()> {
        let old = self.master()?;
        // Refused while the last one is not over.
        if self
            .sentinel
            .try_ask(&["SENTINEL", "FAILOVER", "semel"])
            .is_err()
        {
            return Ok(());
        }
        self.until("another master", |this| {
            this.master().is_ok_and(|master| master != old)
        })
        .await?;
        self.whole().await
    }
}

impl Backend for SentinelSetup {
    fn place(&self) -> WorkerPlace {
        let url = format!(
            "redis+sentinel://127.0.0.1:{}/semel?durability=wait:1",
            self.sentinel.port()
        );
        WorkerPlace::Processes {
            urls: vec![url],
            skew: faketime::library(),
        }
    }

    fn ways(&self) -> &[Proxy] {
        &[]
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::Failover,
            Kind::PlannedFailover,
            Kind::PauseStore,
            Kind::ScriptFlush,
        ]
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        _: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let a_while = Duration::from_millis(rng.random_range(100..400));
            match kind {
                Kind::Failover => self.fail_over(a_while).await?,
                Kind::PlannedFailover => self.planned().await?,
                Kind::PauseStore => {
                    let node = &self.nodes[rng.random_range(0..2)];
                    node.process().pause();
                    pass(a_while).await;
                    node.process().resume();
                    self.whole().await?;
                }
                _ => {
                    self.nodes[self.master()?].try_ask(&["SCRIPT", "FLUSH"])?;
                }
            }
            Ok(1)
        })
    }
}
