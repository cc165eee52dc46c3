//! A single durable Redis, and a pair with an asynchronous replica.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::{Proxy, Way};

use super::disk::Disk;
use super::exhaust::{can_limit_files, take_connections, take_files};
use super::faketime::FakeTime;
use super::{Backend, Shared, disk, exhaust, faketime, ways};
use crate::clock::{MachineClock, pass, tick};
use crate::kinds::Kind;
use crate::place::WorkerPlace;
use crate::report::LeftOut;
use crate::verdict::Strictness;

/// One server, with `appendfsync always`.
pub(super) struct One {
    server: RedisServer,
    ways: Vec<Proxy>,
    clock: Option<FakeTime>,
    disk: Disk,
}

/// As many as callers and the harness need, and soon taken.
const MOST_CLIENTS: usize = 200;

impl One {
    pub(super) async fn redis(workers: usize) -> Result<Self> {
        Self::with_clock(PathBuf::from("redis-server"), workers).await
    }

    pub(super) async fn valkey(workers: usize) -> Result<Self> {
        Self::with_clock(valkey_program()?, workers).await
    }

    async fn with_clock(program: PathBuf, workers: usize) -> Result<Self> {
        let Some(clock) = FakeTime::new()? else {
            return Self::start(&program, None, workers).await;
        };
        Self::start(&wrapped(&clock, &program)?, Some(clock), workers).await
    }

    async fn start(program: &Path, clock: Option<FakeTime>, workers: usize) -> Result<Self> {
        let disk = Disk::new("redis-disk", disk::SIZE);
        let (folder, most) = (
            disk.folder().display().to_string(),
            MOST_CLIENTS.to_string(),
        );
        let settings = [
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--dir",
            &folder,
            "--maxclients",
            &most,
        ];
        let server = RedisServer::start_as(program, "", &settings).await;
        let ways = ways(server.address(), workers).await?;
        Ok(Self {
            server,
            ways,
            clock,
            disk,
        })
    }

    /// With `appendfsync always` the server ends where it can't write: it starts again when there
    /// is room.
    async fn fill_disk(&mut self, for_time: Duration) -> Result<()> {
        self.disk.fill(for_time).await?;
        if self.server.try_ask(&["PING"]).is_err() {
            self.server.restart().await;
        }
        Ok(())
    }
}

/// The server's program, started with another clock. The process is the server itself: it can be
/// killed by its id.
fn wrapped(clock: &FakeTime, program: &Path) -> Result<PathBuf> {
    let script = clock.folder().join("server");
    let mut text = "#!/bin/sh\n".to_owned();
    for (name, value) in clock.environment() {
        text += &format!("export {name}={value}\n");
    }
    // The allocator of some builds asks for the time before the library is ready; with the C
    // library's own they start.
    text += "export LD_PRELOAD=\"$LD_PRELOAD libc.so.6\"\n";
    text += &format!("exec {} \"$@\"\n", program.display());
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// The program of the Valkey that `cargo xtask services up valkey` has started.
fn valkey_program() -> Result<PathBuf> {
    let url = std::env::var("SEMEL_TEST_VALKEY_URL");
    let url = url.context("SEMEL_TEST_VALKEY_URL: see `cargo xtask services up valkey`")?;
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("redis://"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"INFO server\r\n")?;
    for line in BufReader::new(stream).lines() {
        if let Some(program) = line?.strip_prefix("executable:") {
            return Ok(program.trim().into());
        }
    }
    anyhow::bail!("the server doesn't say what it is")
}

fn urls(ways: &[Proxy]) -> Vec<String> {
    ways.iter()
        .map(|way| format!("redis://{}", way.address()))
        .collect()
}

impl Backend for One {
    fn place(&self) -> WorkerPlace {
        WorkerPlace::Processes {
            urls: urls(&self.ways),
            skew: faketime::library(),
        }
    }

    fn ways(&self) -> &[Proxy] {
        &self.ways
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![
            Kind::KillStore,
            Kind::PauseStore,
            Kind::OutOfMemory,
            Kind::EvictionFlip,
            Kind::ScriptFlush,
            Kind::MaxClients,
        ];
        if self.disk.is_small() {
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

    fn left_out(&self) -> Vec<LeftOut> {
        let clock = faketime::left_out(self.clock.is_some());
        let disk = disk::left_out(self.disk.is_small());
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
            let set = |name: &str, value: &str| {
                self.server
                    .try_ask(&["CONFIG", "SET", name, value])
                    .map(drop)
            };
            match kind {
                Kind::MaxClients => {
                    let server = self.server.address();
                    take_connections(server, MOST_CLIENTS, &self.ways, a_while).await?;
                }
                Kind::FileHandles if self.clock.as_ref().is_some_and(FakeTime::is_off) => {
                    return Ok(0);
                }
                Kind::FileHandles => {
                    take_files(self.server.process().id(), &self.ways, a_while).await?;
                }
                Kind::DiskFull => self.fill_disk(a_while).await?,
                Kind::KillStore => {
                    self.server.kill();
                    pass(a_while).await;
                    self.server.restart().await;
                }
                Kind::PauseStore => {
                    self.server.process().pause();
                    pass(a_while * 2).await;
                    self.server.process().resume();
                }
                Kind::OutOfMemory => {
                    set("maxmemory", "1mb")?;
                    pass(a_while).await;
                    set("maxmemory", "0")?;
                }
                Kind::EvictionFlip => {
                    set("maxmemory-policy", "allkeys-lru")?;
                    pass(a_while).await;
                    set("maxmemory-policy", "noeviction")?;
                }
                Kind::ClockForward | Kind::ClockBack => {
                    return match &mut self.clock {
                        Some(clock) => clock.jump(kind, windows).await,
                        None => Ok(0),
                    };
                }
                _ => {
                    self.server.try_ask(&["SCRIPT", "FLUSH"])?;
                }
            }
            Ok(1)
        })
    }
}

/// A master whose replica may be behind; the harness is who fails over.
pub(super) struct Pair {
    master: RedisServer,
    replica: RedisServer,
    between: Proxy,
    ways: Vec<Proxy>,
}

impl Pair {
    pub(super) async fn start(workers: usize) -> Result<Self> {
        let master = RedisServer::start(&["--repl-diskless-sync-delay", "0"]).await;
        let (replica, between) = follow(&master).await?;
        let ways = ways(master.address(), workers).await?;
        Ok(Self {
            master,
            replica,
            between,
            ways,
        })
    }

    /// The replica is cut off for a while; then the master dies, and the replica takes its place
    /// with what it has.
    async fn fail_over(&mut self, behind: Duration, windows: &Shared) -> Result<()> {
        let from = tick();
        self.between.hold(Way::Reply, true);
        pass(behind).await;
        self.master.kill();
        self.between.cut_all();
        self.replica.try_ask(&["REPLICAOF", "NO", "ONE"])?;
        for way in &self.ways {
            way.lead_to(self.replica.address());
            way.cut_all();
        }
        windows.lock().failovers.push((from, tick()));
        let (replica, between) = follow(&self.replica).await?;
        self.master = std::mem::replace(&mut self.replica, replica);
        self.between = between;
        Ok(())
    }
}

pub(super) async fn follow(master: &RedisServer) -> Result<(RedisServer, Proxy)> {
    let between = Proxy::to(master.address(), MachineClock::shared()).await?;
    let port = between.address().port().to_string();
    let settings = [
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ];
    let replica = RedisServer::start(&settings).await;
    replica
        .until(&["INFO", "replication"], "master_link_status:up")
        .await;
    Ok((replica, between))
}

impl Backend for Pair {
    fn place(&self) -> WorkerPlace {
        WorkerPlace::Processes {
            urls: urls(&self.ways),
            skew: None,
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
        vec![Kind::Failover]
    }

    fn strike<'a>(
        &'a mut self,
        _: Kind,
        rng: &'a mut StdRng,
        windows: &'a Shared,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let behind = Duration::from_millis(rng.random_range(200..800));
            self.fail_over(behind, windows).await?;
            Ok(1)
        })
    }
}
