//! PostgreSQL, alone or with a replica.

use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::{PostgresServer, url_at};
use semel_testkit::proxy::{Proxy, Way};

use super::disk::Disk;
use super::exhaust::{can_limit_files, take_files, take_sessions};
use super::faketime::FakeTime;
use super::{Backend, Shared, disk, exhaust, faketime, ways};
use crate::clock::{MachineClock, pass, tick};
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::report::LeftOut;
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

/// As many as callers and the harness need, and soon taken.
const MOST_SESSIONS: &str = "max_connections=80";
/// How many connections a worker has, fewer than its callers.
const POOL: usize = 6;
/// Room for the records of a long run; the log of changes may take a part of it.
const DISK: &str = "size=1536m";
const LOG: [&str; 2] = ["max_wal_size=128MB", "min_wal_size=32MB"];

/// A PostgreSQL.
pub(super) struct Postgres {
    primary: PostgresServer,
    standby: Option<(PostgresServer, Proxy)>,
    ways: Vec<Proxy>,
    kind: Replica,
    clock: Option<FakeTime>,
    /// Where there is no replica. It ends after the server on it.
    disk: Option<Disk>,
}

impl Postgres {
    pub(super) async fn start(workers: usize, kind: Replica) -> Result<Self> {
        // A replica that is made later would have another clock than its primary.
        let clock = if kind == Replica::None {
            FakeTime::new()?
        } else {
            None
        };
        // Each of its sessions is a process, and all of them have one clock.
        let environment = clock.as_ref().map(FakeTime::shared_environment);
        let environment: Vec<(&str, &str)> = environment
            .iter()
            .flatten()
            .map(|(name, value)| (*name, &**value))
            .collect();
        let disk = (kind == Replica::None).then(|| Disk::new("postgres-disk", DISK));
        let settings = [&[MOST_SESSIONS], &LOG[..]].concat();
        let primary = match &disk {
            Some(disk) => {
                let folder = disk.folder().join("server");
                std::fs::create_dir(&folder)?;
                PostgresServer::start_at(folder, &settings, &environment).await
            }
            None => PostgresServer::start_in(&settings, &environment).await,
        };
        let ways = ways(primary.address(), workers).await?;
        let mut this = Self {
            primary,
            standby: None,
            ways,
            kind,
            clock,
            disk,
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
        let settings = [MOST_SESSIONS];
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
        // A machine that fails is silent at once. Killed, a server's sessions go on for moments,
        // and show what they have committed and nobody confirmed.
        for way in &self.ways {
            way.silence().await;
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

    /// Where it can't write its log, the server ends: it starts again when there is room.
    async fn fill_disk(&mut self, for_time: Duration) -> Result<u64> {
        let Some(disk) = &self.disk else {
            return Ok(0);
        };
        disk.fill(for_time).await?;
        self.primary.recover().await;
        Ok(1)
    }

    /// Another session locks a quarter of the records, so that calls for them fill all pools.
    /// Returns whether more calls waited than all pools but one have connections for.
    ///
    /// The session asks without waiting: a server whose clock was set back may not end a deadlock.
    async fn exhaust_pools(&self, for_time: Duration) -> Result<u64> {
        let lock = format!(
            "do $$ begin for attempt in 1..2000 loop \
             begin lock table semel.records_0 nowait; perform pg_sleep({}); exit; \
             exception when lock_not_available then perform pg_sleep(0.002); end; \
             end loop; end $$",
            for_time.as_secs_f64()
        );
        let mut locking = tokio::process::Command::from(self.primary.psql("semel", &lock));
        let mut locking = locking.kill_on_drop(true).spawn()?;
        let waiting = "select count(*) from pg_stat_activity where datname = 'semel' and wait_event_type = 'Lock'";
        let (mut most, enough) = (0, self.ways.len() * (POOL - 1));
        while matches!(locking.try_wait(), Ok(None)) {
            let count = self
                .primary
                .try_sql("postgres", waiting)
                .unwrap_or_default();
            most = count.parse().unwrap_or(0).max(most);
            pass(Duration::from_millis(20)).await;
        }
        Ok(u64::from(most > enough))
    }

    fn end_sessions(&self) -> Result<u64> {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = 'semel' and pid <> pg_backend_pid()";
        let ended = self.primary.try_sql("semel", end);
        Ok(u64::from(ended.is_ok_and(|count| count != "0")))
    }
}

impl Backend for Postgres {
    fn place(&self) -> WorkerPlace {
        let url = |way: &Proxy| format!("{}?max_connections={POOL}", url_at(way.address()));
        WorkerPlace::Processes {
            urls: self.ways.iter().map(url).collect(),
            skew: faketime::library(),
        }
    }

    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
            margin: Duration::ZERO,
            may_lose: self.kind == Replica::Behind,
        }
    }

    fn ways(&self) -> &[Proxy] {
        &self.ways
    }

    fn kinds(&self) -> Vec<Kind> {
        match self.kind {
            Replica::None => {
                let mut kinds = vec![
                    Kind::KillStore,
                    Kind::SessionsEnded,
                    Kind::MaxClients,
                    Kind::PoolExhausted,
                ];
                if self.disk.as_ref().is_some_and(Disk::is_small) {
                    kinds.push(Kind::DiskFull);
                }
                if can_limit_files() {
                    kinds.push(Kind::FileHandles);
                }
                if self.clock.is_some() {
                    kinds.extend([Kind::ClockForward, Kind::ClockBack]);
                }
                kinds
            }
            Replica::Behind => vec![Kind::Failover, Kind::SessionsEnded],
            // A session that is ended while its commit waits for the replica leaves a commit that
            // all can see and the replica may not have: the server's own rule, and no failure of
            // the level.
            Replica::Synchronous => vec![Kind::Failover],
        }
    }

    fn left_out(&self) -> Vec<LeftOut> {
        let Some(disk) = &self.disk else {
            return Vec::new();
        };
        let clock = faketime::left_out(self.clock.is_some());
        let disk = disk::left_out(disk.is_small());
        [clock, disk, exhaust::left_out()].concat()
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
                Kind::MaxClients => take_sessions(&self.primary.url(), &self.ways, a_while).await,
                Kind::PoolExhausted => self.exhaust_pools(a_while).await,
                Kind::FileHandles if self.clock.as_ref().is_some_and(FakeTime::is_off) => Ok(0),
                Kind::FileHandles => {
                    take_files(self.primary.process().id(), &self.ways, a_while).await?;
                    self.primary.recover().await;
                    Ok(1)
                }
                Kind::DiskFull => self.fill_disk(a_while).await,
                _ => self.end_sessions(),
            }
        })
    }
}
