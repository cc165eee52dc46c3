//! PostgreSQL, alone or with a replica, and MariaDB.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::{MariaDbServer, PostgresServer, url_at};
use semel_testkit::proxy::{Proxy, Way};

use super::faketime::FakeTime;
use super::{Backend, Shared, faketime, ways};
use crate::clock::{MachineClock, pass, tick};
use crate::crew::Place;
use crate::kinds::Kind;
use crate::verdict::Strictness;

/// What stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replica {
    None,
    /// An asynchronous one, behind by a little when it has to take over.
    Behind,
    /// One without which nothing is acknowledged.
    Synchronous,
}

/// A PostgreSQL.
pub(super) struct Postgres {
    primary: PostgresServer,
    standby: Option<(PostgresServer, Proxy)>,
    ways: Vec<Proxy>,
    kind: Replica,
    clock: Option<FakeTime>,
}

impl Postgres {
    pub(super) async fn start(workers: usize, kind: Replica) -> Result<Self> {
        // A replica that is made later would have another clock than its primary.
        let clock = if kind == Replica::None {
            FakeTime::new()?
        } else {
            None
        };
        let environment = clock.as_ref().map(FakeTime::environment);
        let environment: Vec<(&str, &str)> = environment
            .iter()
            .flatten()
            .map(|(name, value)| (*name, &**value))
            .collect();
        let settings = ["max_connections=120"];
        let primary = PostgresServer::start_in(&settings, &environment).await;
        let ways = ways(primary.address(), workers).await?;
        let mut this = Self {
            primary,
            standby: None,
            ways,
            kind,
            clock,
        };
        // Before the replica is: it would wait for it.
        semel::open_store(&this.primary.url()).await?;
        if kind != Replica::None {
            this.follow().await?;
        }
        if kind == Replica::Synchronous {
            let names = "alter system set synchronous_standby_names = 'FIRST 1 (replica)'";
            this.primary.sql("postgres", names);
            this.primary.sql("postgres", "select pg_reload_conf()");
        }
        Ok(this)
    }

    /// A new replica of the primary.
    async fn follow(&mut self) -> Result<()> {
        let between = Proxy::to(self.primary.address(), MachineClock::shared()).await?;
        let settings = ["max_connections=120"];
        let replica = PostgresServer::replica_of(between.address(), "replica", &settings).await;
        let following = "select count(*) from pg_stat_replication where state = 'streaming'";
        for _ in 0..600 {
            if self
                .primary
                .try_sql("postgres", following)
                .is_ok_and(|count| count == "1")
            {
                self.standby = Some((replica, between));
                return Ok(());
            }
            pass(Duration::from_millis(50)).await;
        }
        anyhow::bail!("the replica never follows")
    }

    async fn fail_over(&mut self, behind: Duration, windows: &Shared) -> Result<u64> {
        let Some((replica, between)) = self.standby.take() else {
            return Ok(0);
        };
        let from = tick();
        if self.kind == Replica::Behind {
            between.hold(Way::Reply, true);
        }
        pass(behind).await;
        // A machine that fails is silent at once. Killed, a server's sessions go on for moments, and show what they have
        // committed and nobody confirmed.
        for way in &self.ways {
            way.refuse(true);
            way.cut_all();
        }
        self.primary.kill();
        between.cut_all();
        between.refuse(true);
        replica.promote();
        for way in &self.ways {
            way.lead_to(replica.address());
            way.refuse(false);
        }
        windows.lock().failovers.push((from, tick()));
        self.primary = replica;
        self.follow().await?;
        Ok(1)
    }

    fn end_sessions(&self) -> Result<u64> {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = 'semel' and pid <> pg_backend_pid()";
        let ended = self.primary.try_sql("semel", end);
        Ok(u64::from(ended.is_ok_and(|count| count != "0")))
    }
}

impl Backend for Postgres {
    fn place(&self) -> Place {
        let url = |way: &Proxy| format!("{}?max_connections=6", url_at(way.address()));
        Place::Processes {
            urls: self.ways.iter().map(url).collect(),
            skew: faketime::library(),
        }
    }

    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
            may_lose: self.kind == Replica::Behind,
        }
    }

    fn ways(&self) -> &[Proxy] {
        &self.ways
    }

    fn kinds(&self) -> Vec<Kind> {
        match self.kind {
            Replica::None => {
                let mut kinds = vec![Kind::KillStore, Kind::SessionsEnded];
                if self.clock.is_some() {
                    kinds.extend([Kind::ClockForward, Kind::ClockBack]);
                }
                kinds
            }
            Replica::Behind => vec![Kind::Failover, Kind::SessionsEnded],
            // A session that is ended while its commit waits for the replica leaves a commit that all can see and the
            // replica may not have: the server's own rule, and no failure of the level.
            Replica::Synchronous => vec![Kind::Failover],
        }
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
                Kind::KillStore => {
                    self.primary.kill();
                    pass(a_while).await;
                    self.primary.restart().await;
                    Ok(1)
                }
                Kind::ClockForward | Kind::ClockBack => match &mut self.clock {
                    Some(clock) => clock.jump(kind, windows).await,
                    None => Ok(0),
                },
                Kind::Failover => self.fail_over(a_while, windows).await,
                _ => self.end_sessions(),
            }
        })
    }
}

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
    fn place(&self) -> Place {
        let url =
            |way: &Proxy| format!("{}?max_connections=6", MariaDbServer::url_at(way.address()));
        Place::Processes {
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
