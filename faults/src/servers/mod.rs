//! The backends of the runs: private stores that faults may strike.

mod cluster;
mod dated;
mod disk;
mod exhaust;
mod faketime;
mod mariadb;
mod memory;
mod network;
mod node;
mod postgres;
mod redis;
mod replicas;
mod seaweed;
mod sentinel;
mod split_cluster;
mod split_sentinel;
pub(crate) mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::proxy::Proxy;

use crate::clock::MachineClock;
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::report::LeftOut;
use crate::verdict::{Strictness, Windows};

use split_sentinel::Level;

pub(crate) use memory::Memory;
pub(crate) use network::on_machine;

/// A store by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    Memory,
    /// One server that writes every change to disk before it answers.
    Redis,
    /// The same, with a clock that jumps.
    Valkey,
    /// A pair without a durability level: losses by a failover are counted.
    RedisAsync,
    /// With a sentinel, and `durability=wait:1`.
    RedisSentinel,
    /// Six servers, with `durability=wait:1`.
    RedisCluster,
    /// A master with three replicas, and `durability=wait:1`: losses with an unconfirmed replica
    /// are counted.
    RedisReplicas,
    /// With three sentinels, on machines that are separated from each other.
    SentinelSplit,
    /// The same without a durability level: losses by a failover are counted.
    SentinelSplitAsync,
    /// A cluster of machines that are separated from each other.
    ClusterSplit,
    Postgres,
    /// With an asynchronous replica: losses by a failover are counted.
    PostgresAsync,
    /// With a synchronous replica.
    PostgresSync,
    Mariadb,
    S3,
    Sqlite,
    /// Sidecars on a Redis, with callers over HTTP.
    Sidecars,
    /// An exactly-once ledger: effects and records in one transaction, with jobs and a stream
    /// inbox.
    LedgerPostgres,
    /// The same with a synchronous replica that takes over.
    LedgerFailover,
    LedgerMariadb,
}

impl Name {
    pub(crate) fn text(self) -> String {
        let value = self.to_possible_value();
        value
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

/// The fault windows that the checker must know.
pub(crate) type Shared = Arc<parking_lot::Mutex<Windows>>;

/// A store that can be struck.
pub(crate) trait Backend: Send {
    /// Where workers run, and how they reach the store.
    fn place(&self) -> WorkerPlace;

    /// How strictly histories are checked.
    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
            margin: Duration::ZERO,
            may_lose: false,
        }
    }

    /// The lease of an operation: long enough for a busy machine.
    fn lease(&self) -> Duration {
        Duration::from_millis(1_000)
    }

    /// Whether its clock is fine enough for records that live for milliseconds.
    fn has_fine_clock(&self) -> bool {
        true
    }

    /// Whether it counts by the machine's wall clock, which may be set.
    fn has_wall_clock(&self) -> bool {
        true
    }

    /// The proxies between workers and store, if there are any.
    fn ways(&self) -> &[Proxy];

    /// The faults of the store itself.
    fn kinds(&self) -> Vec<Kind>;

    /// The faults that can't be tried on this machine.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Strikes, and undoes the fault. Returns how often it struck.
    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>>;

    /// Writes down what happened without the nemesis, once all workers have ended.
    fn end_round(&mut self, windows: &Shared) -> Result<()> {
        let _ = windows;
        Ok(())
    }

    /// Faults that happened without the nemesis.
    fn by_itself(&self) -> u64 {
        0
    }
}

/// Why a store can't run on this machine; `None` if it can.
pub(crate) fn why_not(name: Name) -> Option<String> {
    match name {
        Name::SentinelSplit | Name::SentinelSplitAsync | Name::ClusterSplit => network::why_not(),
        _ => None,
    }
}

/// Starts a store.
pub(crate) async fn start(name: Name, workers: usize, seed: u64) -> Result<Box<dyn Backend>> {
    Ok(match name {
        Name::Memory => Box::new(Memory::sound(seed)),
        Name::Redis => Box::new(redis::One::redis(workers).await?),
        Name::Valkey => Box::new(redis::One::valkey(workers).await?),
        Name::RedisAsync => Box::new(redis::Pair::start(workers).await?),
        Name::RedisSentinel => Box::new(sentinel::SentinelSetup::start().await?),
        Name::RedisCluster => Box::new(cluster::Cluster::start().await?),
        Name::RedisReplicas => Box::new(replicas::Replicas::start(workers).await?),
        Name::SentinelSplit => Box::new(split_sentinel::Split::start(Level::Waits).await?),
        Name::SentinelSplitAsync => Box::new(split_sentinel::Split::start(Level::Loses).await?),
        Name::ClusterSplit => Box::new(split_cluster::Split::start().await?),
        Name::Postgres => {
            Box::new(postgres::Postgres::start(workers, postgres::Replica::None).await?)
        }
        Name::PostgresAsync => {
            Box::new(postgres::Postgres::start(workers, postgres::Replica::Behind).await?)
        }
        Name::PostgresSync => {
            Box::new(postgres::Postgres::start(workers, postgres::Replica::Synchronous).await?)
        }
        Name::Mariadb => Box::new(mariadb::MariaDb::start(workers).await?),
        Name::S3 => Box::new(seaweed::Seaweed::start(workers).await?),
        Name::Sqlite => Box::new(sqlite::Sqlite::start()?),
        Name::Sidecars | Name::LedgerPostgres | Name::LedgerFailover | Name::LedgerMariadb => {
            anyhow::bail!("sidecars and ledgers have runs of their own")
        }
    })
}

/// A seeded bug: a network split with masters on both sides, and callers that do not wait for a
/// replica.
pub(crate) async fn flawed_split() -> Result<Box<dyn Backend>> {
    Ok(Box::new(split_sentinel::Split::start(Level::Flawed).await?))
}

/// A proxy for each worker.
pub(crate) async fn ways(server: std::net::SocketAddr, workers: usize) -> Result<Vec<Proxy>> {
    let mut ways = Vec::new();
    for _ in 0..workers {
        ways.push(Proxy::to(server, MachineClock::shared()).await?);
    }
    Ok(ways)
}
