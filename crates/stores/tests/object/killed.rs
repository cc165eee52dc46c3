//! A server that dies.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel_core::{Claim, Claimed, Settled, Store as _};
use semel_stores::object::ObjectStore;
use semel_testkit::private::{Private, free_port, new_folder};

use super::support::{clock, complete, fresh, open, replayed, variable};

const PARTS: [&str; 4] = ["s3", "master", "volume", "filer"];

/// A SeaweedFS of the test's own, whose bucket makes itself.
struct Seaweed {
    folder: PathBuf,
    arguments: Vec<String>,
    url: String,
    process: Private,
}

impl Seaweed {
    fn start() -> Self {
        let folder = new_folder("seaweed");
        let identities = folder.join("identities.json");
        let text = r#"{"identities":[{"name":"semel","credentials":[{"accessKey":"semel","secretKey":"semel"}],
            "actions":["Admin","Read","Write","List"]}]}"#;
        std::fs::write(&identities, text).expect("a folder of our own");
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
            "-volume.max=50",
            "-master.volumeSizeLimitMB=64",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("-dir={}", folder.display()));
        arguments.push(format!("-s3.config={}", identities.display()));
        let mut ports = Vec::new();
        for part in PARTS {
            let (port, grpc) = (free_port(), free_port());
            arguments.push(format!("-{part}.port={port}"));
            arguments.push(format!("-{part}.port.grpc={grpc}"));
            ports.push(port);
        }
        let url = format!(
            "s3://semel:semel@bucket?endpoint=http://127.0.0.1:{}",
            ports[0]
        );
        let process = run(&arguments);
        Self {
            folder,
            arguments,
            url,
            process,
        }
    }

    /// Opens a store as soon as the server can keep something.
    async fn store(&mut self) -> ObjectStore {
        for _ in 0..300 {
            assert!(self.process.runs(), "the server ended at its start");
            if let Ok(store) = ObjectStore::open(&self.url, clock()).await {
                return store;
            }
            clock().sleep(Duration::from_millis(200)).await;
        }
        open(&self.url).await
    }

    fn restart(&mut self) {
        self.process = run(&self.arguments);
    }
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        self.process.kill();
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(arguments: &[String]) -> Private {
    Private::start(Command::new(variable("SEMEL_TEST_WEED")).args(arguments))
}

/// Runs operations until told to stop; gives those that were acknowledged.
async fn load(store: ObjectStore, stop: Arc<AtomicBool>) -> Vec<Claim> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let claim = fresh();
        if let Ok(Claimed::Won(lease)) = store.claim(&claim).await
            && let Ok(Settled::Done) = store.settle(&lease, &complete("done")).await
        {
            acknowledged.push(claim);
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_nothing_that_was_acknowledged() {
    let mut server = Seaweed::start();
    let store = server.store().await;
    let stop = Arc::new(AtomicBool::new(false));
    let callers = [(); 4].map(|()| tokio::spawn(load(store.clone(), Arc::clone(&stop))));
    clock().sleep(Duration::from_secs(6)).await;
    server.process.kill();
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(caller.await.expect("no panic"));
    }
    assert!(acknowledged.len() > 20, "{} only", acknowledged.len());
    server.restart();
    let store = server.store().await;
    for claim in &acknowledged {
        let answer = replayed(&store, claim).await;
        assert_eq!(Some(&answer), complete("done").answer());
    }
    println!("{} acknowledged, all there", acknowledged.len());
}
