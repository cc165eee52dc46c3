//! MariaDB.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::MariaDbServer;
use semel_testkit::proxy::Proxy;

use super::faketime::FakeTime;
use super::{Backend, Shared, faketime, ways};
use crate::clock::pass;
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::report::LeftOut;

/// A MariaDB that has every commit on disk.
pub(super) struct MariaDb {
    server: MariaDbServer,
    ways: Vec<Proxy>,
    clock: Option<FakeTime>,
}

impl MariaDb {
    pub(super) async fn start(workers: usize) -> Result<Self> {
        let clock = FakeTime::new()?;
        let environment = clock.as_ref().map(FakeTime::environment);
        let environment: Vec<(&str, &str)> = environment
            .iter()
            .flatten()
            .map(|(name, value)| (*name, &**value))
            .collect();
        let server = MariaDbServer::start_in(&[], &environment).await;
        let ways = ways(server.address(), workers).await?;
        Ok(Self {
            server,
            ways,
            clock,
        })
    }

    /// Callers have to connect anew, and find fewer places than they need.
    async fn take_connections(&self, for_time: Duration) -> Result<()> {
        let allow = |most: u32| {
            let set = format!("set global max_connections = {most}");
            self.server.try_sql(&set).map_err(anyhow::Error::msg)
        };
        allow(10)?;
        for way in &self.ways {
            way.cut_all();
        }
        pass(for_time).await;
        // Somebody has to leave before we can connect.
        for way in &self.ways {
            way.refuse(true);
            way.cut_all();
        }
        let mut allowed = allow(151);
        for _ in 0..100 {
            if allowed.is_ok() {
                break;
            }
            pass(Duration::from_millis(50)).await;
            allowed = allow(151);
        }
        for way in &self.ways {
            way.refuse(false);
        }
        allowed.map(drop)
    }

    fn end_sessions(&self) -> Result<u64> {
        let list = "select id from information_schema.processlist where user = 'semel'";
        let ids = self.server.try_sql(list).map_err(anyhow::Error::msg)?;
        let kills: Vec<String> = ids.lines().map(|id| format!("kill {id}")).collect();
        ensure!(kills.len() < 1_000, "too many sessions");
        let mut ended = 0;
        for kill in kills {
            // Gone by itself is as good.
            ended |= u64::from(self.server.try_sql(&kill).is_ok());
        }
        Ok(ended)
    }
}

impl Backend for MariaDb {
    fn place(&self) -> WorkerPlace {
        let url =
            |way: &Proxy| format!("{}?max_connections=6", MariaDbServer::url_at(way.address()));
        WorkerPlace::Processes {
            urls: self.ways.iter().map(url).collect(),
            skew: faketime::library(),
        }
    }

    fn ways(&self) -> &[Proxy] {
        &self.ways
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::KillStore, Kind::SessionsEnded, Kind::MaxClients];
        if self.clock.is_some() {
            kinds.extend([Kind::ClockForward, Kind::ClockBack]);
        }
        kinds
    }

    fn left_out(&self) -> Vec<LeftOut> {
        faketime::left_out(self.clock.is_some())
    }

    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let a_while = Duration::from_millis(rng.random_range(100..700));
            match kind {
                Kind::SessionsEnded => return self.end_sessions(),
                Kind::ClockForward | Kind::ClockBack => {
                    return match &mut self.clock {
                        Some(clock) => clock.jump(kind, windows).await,
                        None => Ok(0),
                    };
                }
                Kind::MaxClients => self.take_connections(a_while).await?,
                _ => {
                    self.server.kill();
                    pass(a_while).await;
                    self.server.restart().await;
                }
            }
            Ok(1)
        })
    }
}
