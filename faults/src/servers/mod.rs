//! The stores that are run against, each a private one that may be struck.

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
use crate::crew::Place;
use crate::kinds::Kind;
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
    /// The same, with a clock that is set.
    Valkey,
    /// A pair without a level of durability: what a failover loses is counted.
    RedisAsync,
    /// Under a sentinel, with `durability=wait:1`.
    RedisSentinel,
    /// Six servers, with `durability=wait:1`.
    RedisCluster,
    /// A master with three replicas, and `durability=wait:1`: what is lost with a replica that didn't confirm is counted.
    RedisReplicas,
    /// Under three sentinels, on machines that are cut from each other.
    SentinelSplit,
    /// The same without a level of durability: what a failover loses is counted.
    SentinelSplitAsync,
    /// A cluster of machines that are cut from each other.
    ClusterSplit,
    Postgres,
    /// With an asynchronous replica: what a failover loses is counted.
    PostgresAsync,
    /// With a synchronous replica.
    PostgresSync,
    Mariadb,
    S3,
    Sqlite,
    /// Sidecars on a Redis, with callers over HTTP.
    Sidecars,
    /// Effects and records in one transaction: an exactly-once ledger, with jobs and a stream's inbox beside it.
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

/// Who is told when something happens that the rules must know of.
pub(crate) type Shared = Arc<parking_lot::Mutex<Windows>>;

/// A store that can be struck.
pub(crate) trait Backend: Send {
    /// Where workers run, and how they reach it.
    fn place(&self) -> Place;

    /// How it is to be read.
    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
            margin: Duration::ZERO,
            may_lose: false,
        }
    }

    /// The lease of an operation: long enough that a busy machine doesn't end it by itself.
    fn lease(&self) -> Duration {
        Duration::from_millis(1_000)
    }

    /// Whether its clock is fine enough for records that live for milliseconds.
    fn has_fine_clock(&self) -> bool {
        true
    }

    /// The ways of the workers to it, where they can be cut.
    fn ways(&self) -> &[Proxy];

    /// What can strike it, besides its ways.
    fn kinds(&self) -> Vec<Kind>;

    /// What could strike it elsewhere, and not on this machine.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Strikes, and makes it whole again. → how often it struck.
    fn strike<'a>(
        &'a mut self,
        kind: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>>;

    /// Faults that have happened by themselves.
    fn by_itself(&self) -> u64 {
        0
    }
}

/// Why a store can't be run on this machine, where that is so.
pub(crate) fn why_not(name: Name) -> Option<String> {
    match name {
        Name::SentinelSplit | Name::SentinelSplitAsync | Name::ClusterSplit => network::why_not(),
        _ => None,
    }
}

/// Starts one.
pub(crate) async fn start(name: Name, workers: usize, seed: u64) -> Result<Box<dyn Backend>> {
    Ok(match name {
        Name::Memory => Box::new(Memory::sound(seed)),
        Name::Redis => Box::new(redis::One::redis(workers).await?),
        Name::Valkey => Box::new(redis::One::valkey(workers).await?),
        Name::RedisAsync => Box::new(redis::Pair::start(workers).await?),
        Name::RedisSentinel => Box::new(sentinel::Watched::start().await?),
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

/// Masters on both sides of a network that is split, and callers that don't wait for a replica although nothing may be lost:
/// a flaw that has to be found.
pub(crate) async fn flawed_split() -> Result<Box<dyn Backend>> {
    Ok(Box::new(split_sentinel::Split::start(Level::Flawed).await?))
}

/// A way of its own for each worker.
pub(crate) async fn ways(server: std::net::SocketAddr, workers: usize) -> Result<Vec<Proxy>> {
    let mut ways = Vec::new();
    for _ in 0..workers {
        ways.push(Proxy::to(server, MachineClock::shared()).await?);
    }
    Ok(ways)
}
