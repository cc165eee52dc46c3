//! A bucket on SeaweedFS, with conditional writes that are atomic after its start.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::BoxFuture;
use semel_testkit::private::{Private, free_port, new_folder};
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
    folder: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    port: u16,
    process: Private,
    clock: DatedServer,
    ways: Vec<Proxy>,
}

impl Seaweed {
    pub(super) async fn start(workers: usize) -> Result<Self> {
        let program = std::env::var_os("SEMEL_TEST_WEED");
        let program = program.context("SEMEL_TEST_WEED: see `cargo xtask services up s3`")?;
        let folder = new_folder("seaweed");
        let identities = folder.join("identities.json");
        let text = r#"{"identities":[{"name":"semel","credentials":[{"accessKey":"semel","secretKey":"semel"}],
            "actions":["Admin","Read","Write","List"]}]}"#;
        std::fs::write(&identities, text)?;
        let mut arguments: Vec<String> = [
            "-logtostderr=true",
            "server",
            "-filer",
            "-s3",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3.ip.bind=127.0.0.1",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            "-volume.max=200",
            "-master.volumeSizeLimitMB=64",
            "-volume.minFreeSpace=100MiB",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("-dir={}", folder.display()));
        arguments.push(format!("-s3.config={}", identities.display()));
        let mut ports = Vec::new();
        for part in ["s3", "master", "volume", "filer"] {
            let (port, grpc) = (free_port(), free_port());
            arguments.push(format!("-{part}.port={port}"));
            arguments.push(format!("-{part}.port.grpc={grpc}"));
            ports.push(port);
        }
        let program = PathBuf::from(program);
        let process = Private::start(Command::new(&program).args(&arguments));
        let clock = DatedServer::before(([127, 0, 0, 1], ports[0]).into()).await?;
        let ways = ways(clock.address(), workers).await?;
        let port = ports[0];
        let mut server = Self {
            folder,
            program,
            arguments,
            port,
            process,
            clock,
            ways,
        };
        server.answers().await?;
        Ok(server)
    }

    /// Waits until it keeps something, and keeps to its conditions.
    async fn answers(&mut self) -> Result<()> {
        let url = url(&format!("127.0.0.1:{}", self.port));
        for _ in 0..300 {
            anyhow::ensure!(self.process.runs(), "the server ended at its start");
            if semel::open_store(&url).await.is_ok() {
                pass(SETTLES).await;
                return Ok(());
            }
            pass(Duration::from_millis(200)).await;
        }
        anyhow::bail!("the server never keeps anything")
    }
}

fn url(host: &str) -> String {
    format!("s3://semel:semel@bucket?endpoint=http://{host}")
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Backend for Seaweed {
    fn place(&self) -> WorkerPlace {
        let urls = self
            .ways
            .iter()
            .map(|way| url(&way.address().to_string()))
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
            self.process.kill();
            for way in &self.ways {
                way.refuse(true);
            }
            pass(Duration::from_millis(rng.random_range(100..700))).await;
            self.process = Private::start(Command::new(&self.program).args(&self.arguments));
            self.answers().await?;
            for way in &self.ways {
                way.refuse(false);
            }
            Ok(1)
        })
    }
}
