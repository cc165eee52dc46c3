//! A bucket on SeaweedFS, with conditional writes that are atomic after its start.

use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::SeaweedServer;
use semel_testkit::proxy::Proxy;

use super::dated::DatedServer;
use super::{Backend, Shared, ways};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::verdict::Strictness;

/// Among the first writes that this server takes after its start, two conditional creations of one
/// object can both succeed (no code of ours is needed to see it; docs/stores/object.md). Nobody is
/// let in before that is over.
const SETTLES: Duration = Duration::from_secs(1);

/// The margin between clocks that a bucket's leases have, and the second within which a time is
/// told.
const MARGIN: Duration = Duration::from_secs(3);

/// A server, and the ways to it.
pub(super) struct Seaweed {
    server: SeaweedServer,
    clock: DatedServer,
    ways: Vec<Proxy>,
}

impl Seaweed {
    pub(super) async fn start(workers: usize) -> Result<Self> {
        let server = SeaweedServer::start();
        let clock = DatedServer::before(server.address()).await?;
        let ways = ways(clock.address(), workers).await?;
        let mut this = Self {
            server,
            clock,
            ways,
        };
        this.answers().await?;
        Ok(this)
    }

    /// Waits until it keeps something, and keeps to its conditions.
    async fn answers(&mut self) -> Result<()> {
        let url = SeaweedServer::url_at(self.server.address());
        for _ in 0..300 {
            anyhow::ensure!(self.server.runs(), "the server ended at its start");
            if semel::open_store(&url).await.is_ok() {
                pass(SETTLES).await;
                return Ok(());
            }
            pass(Duration::from_millis(200)).await;
        }
        anyhow::bail!("the server never keeps anything")
    }
}

impl Backend for Seaweed {
    fn place(&self) -> WorkerPlace {
        let urls = self
            .ways
            .iter()
            .map(|way| SeaweedServer::url_at(way.address()))
            .collect();
        // A worker an hour off is refused every request: its signatures are dated by its own clock.
        WorkerPlace::Processes { urls, skew: None }
    }

    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(50),
            margin: MARGIN,
            may_lose: false,
        }
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(2_000)
    }

    fn has_fine_clock(&self) -> bool {
        false
    }

    fn ways(&self) -> &[Proxy] {
        &self.ways
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::KillStore, Kind::ClockForward, Kind::ClockBack]
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            if kind != Kind::KillStore {
                return Ok(self.clock.jump(kind, windows).await);
            }
            self.server.kill();
            for way in &self.ways {
                way.refuse(true);
            }
            pass(Duration::from_millis(rng.random_range(100..700))).await;
            self.server.restart();
            self.answers().await?;
            for way in &self.ways {
                way.refuse(false);
            }
            Ok(1)
        })
    }
}
