//! One Redis that survives its death, and a pair of which the second may be behind.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::{RedisServer, new_folder};
use semel_testkit::proxy::{Proxy, Way};

use super::{Backend, Shared, faketime, ways};
use crate::clock::{MachineClock, pass, tick};
use crate::crew::Place;
use crate::kinds::Kind;
use crate::verdict::Strictness;

/// How long the library that tells another time may go on telling the last one, and longer.
const CLOCK_SETTLES: Duration = Duration::from_millis(2_500);

/// One server, with `appendfsync always`.
pub(super) struct One {
    server: RedisServer,
    ways: Vec<Proxy>,
    clock: Option<Clock>,
}

/// The server's clock, as a file that the library reads.
struct Clock {
    file: PathBuf,
    offset: i64,
}

impl One {
    pub(super) async fn start(workers: usize) -> Result<Self> {
        let folder = new_folder("clock");
        let (program, clock) = match faketime() {
            Some(library) => {
                let clock = Clock {
                    file: folder.join("offset"),
                    offset: 0,
                };
                clock.write()?;
                (wrapped(&folder, &library, &clock.file)?, Some(clock))
            }
            None => (PathBuf::from("redis-server"), None),
        };
        let settings = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = RedisServer::start_as(&program, "", &settings).await;
        let ways = ways(server.address(), workers).await?;
        Ok(Self {
            server,
            ways,
            clock,
        })
    }

    async fn set_clock(&mut self, to: i64, windows: &Shared) -> Result<u64> {
        let Some(clock) = &mut self.clock else {
            return Ok(0);
        };
        let by = to - clock.offset;
        if by == 0 {
            return Ok(0);
        }
        clock.offset = to;
        let from = tick();
        clock.write()?;
        pass(CLOCK_SETTLES).await;
        windows.lock().jumps.push((from, tick(), by));
        Ok(1)
    }
}

impl Clock {
    fn write(&self) -> Result<()> {
        Ok(std::fs::write(&self.file, format!("{:+}s\n", self.offset))?)
    }
}

/// The server's program, started with another clock. The process is the server itself: it can be killed by its id.
fn wrapped(folder: &Path, library: &Path, offset: &Path) -> Result<PathBuf> {
    let script = folder.join("redis-server");
    let text = format!(
        "#!/bin/sh\nexport LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_CACHE_DURATION=1 \
         FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1\nexec redis-server \"$@\"\n",
        library.display(),
        offset.display()
    );
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

fn urls(ways: &[Proxy]) -> Vec<String> {
    ways.iter()
        .map(|way| format!("redis://{}", way.address()))
        .collect()
}

impl Backend for One {
    fn place(&self) -> Place {
        Place::Processes {
            urls: urls(&self.ways),
            skew: faketime(),
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
        ];
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
            let set = |name: &str, value: &str| {
                self.server
                    .try_ask(&["CONFIG", "SET", name, value])
                    .map(drop)
            };
            match kind {
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
                Kind::ClockForward => {
                    let to = self
                        .clock
                        .as_ref()
                        .map_or(0, |clock| (clock.offset + 3600).min(3600));
                    return self.set_clock(to, windows).await;
                }
                Kind::ClockBack => {
                    let to = self
                        .clock
                        .as_ref()
                        .map_or(0, |clock| (clock.offset - 3600).max(-3600));
                    return self.set_clock(to, windows).await;
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

    /// The replica is cut off for a while; then the master dies, and the replica takes its place with what it has.
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

async fn follow(master: &RedisServer) -> Result<(RedisServer, Proxy)> {
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
    fn place(&self) -> Place {
        Place::Processes {
            urls: urls(&self.ways),
            skew: None,
        }
    }

    fn strictness(&self) -> Strictness {
        Strictness {
            slack: Duration::from_millis(10),
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
