//! A master with three replicas, and callers that wait for one of them: `durability=wait:1`. What a
//! failover keeps depends on which replica takes over.

use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::{Proxy, Way};

use super::redis::follow;
use super::{Backend, Shared, faketime, ways};
use crate::clock::{pass, tick};
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::verdict::Strictness;

const REPLICAS: usize = 3;

/// The four servers; the harness is who fails over.
pub(super) struct Replicas {
    master: RedisServer,
    /// Each with its way to the master.
    replicas: Vec<(RedisServer, Proxy)>,
    ways: Vec<Proxy>,
}

impl Replicas {
    pub(super) async fn start(workers: usize) -> Result<Self> {
        let master = RedisServer::start(&["--repl-diskless-sync-delay", "0"]).await;
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(follow(&master).await?);
        }
        let ways = ways(master.address(), workers).await?;
        Ok(Self {
            master,
            replicas,
            ways,
        })
    }

    /// Some replicas receive nothing for a while; then the master dies, and one replica takes its
    /// place with what it has.
    async fn fail_over(&mut self, held: &[usize], next: usize, behind: Duration) -> Result<()> {
        for one in held {
            self.replicas[*one].1.hold(Way::Reply, true);
        }
        pass(behind).await;
        self.master.kill();
        let (new, _) = self.replicas.remove(next);
        new.try_ask(&["REPLICAOF", "NO", "ONE"])?;
        for (_, between) in &self.replicas {
            // What is held was never received.
            between.cut_all();
            between.hold(Way::Reply, false);
            between.lead_to(new.address());
        }
        for way in &self.ways {
            way.lead_to(new.address());
            way.cut_all();
        }
        self.master = new;
        self.replicas.push(follow(&self.master).await?);
        self.whole().await
    }

    async fn whole(&self) -> Result<()> {
        for _ in 0..1_200 {
            let info = self.master.try_ask(&["INFO", "replication"]);
            if info.is_ok_and(|info| info.matches("state=online").count() == REPLICAS) {
                return Ok(());
            }
            pass(Duration::from_millis(50)).await;
        }
        anyhow::bail!("never so: three replicas online")
    }
}

impl Backend for Replicas {
    fn place(&self) -> WorkerPlace {
        let url = |way: &Proxy| format!("redis://{}?durability=wait:1", way.address());
        WorkerPlace::Processes {
            urls: self.ways.iter().map(url).collect(),
            skew: faketime::library(),
        }
    }

    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
            margin: Duration::ZERO,
            may_lose: true,
        }
    }

    fn ways(&self) -> &[Proxy] {
        &self.ways
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::Failover, Kind::FailoverBehind]
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let behind = Duration::from_millis(rng.random_range(200..800));
            let one = rng.random_range(0..REPLICAS);
            if kind == Kind::Failover {
                // The only one that can confirm takes over: nothing that was acknowledged may be
                // lost, so no rule is told.
                let held: Vec<usize> = (0..REPLICAS).filter(|other| *other != one).collect();
                self.fail_over(&held, one, behind).await?;
            } else {
                // The other two confirm, and this one takes over.
                let from = tick();
                self.fail_over(&[one], one, behind).await?;
                windows.lock().failovers.push((from, tick()));
            }
            Ok(1)
        })
    }
}
