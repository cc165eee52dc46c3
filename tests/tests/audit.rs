//! The audit trail's copies when the process is killed: every entry that was in the file arrives,
//! and what arrives twice can be told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::StreamExt as _;
use semel_httpclient::Pool;
use semel_testkit::private::{NatsServer, PostgresServer, Private, free_port, new_folder};
use semel_tests::{semel, semel_command};
use serde_json::Value;

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

struct Rig {
    program: PathBuf,
    folder: PathBuf,
    address: SocketAddr,
    admin: SocketAddr,
    client: Pool,
}

impl Rig {
    async fn new(postgres: &PostgresServer, nats: &NatsServer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let upstream = listener.local_addr().expect("an address");
        let router = Router::new().route("/charges", post(|| async { "{}" }));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let redis = std::env::var("SEMEL_TEST_REDIS_URL")
            .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up redis`");
        let (folder, address, admin) = (new_folder("audit"), local(), local());
        let settings = format!(
            "environment = \"audit-{}\"\nlistener.address = \"{address}\"\nadmin.address = \"{admin}\"\nadmin.open = true\nstore.url = \"{redis}\"\n\
             upstream.urls = [\"http://{upstream}\"]\naudit.file = \"{}\"\naudit.postgres.url = \"{}\"\naudit.nats.url = \"{}\"\n",
            address.port(),
            folder.join("audit.jsonl").display(),
            postgres.url(),
            nats.url(),
        );
        std::fs::write(folder.join("semel.toml"), settings).expect("a file");
        Self {
            program: semel(),
            folder,
            address,
            admin,
            client: Pool::new(Duration::from_secs(10)),
        }
    }

    async fn start(&self) -> Private {
        let mut command = semel_command(&self.program);
        command
            .args(["serve", "--config"])
            .arg(self.folder.join("semel.toml"));
        let mut process = Private::start(&mut command);
        let ready = format!("http://{}/_semel/readyz", self.address);
        for _ in 0..1500 {
            assert!(process.runs(), "it ended at its start");
            if self
                .client
                .get(&ready)
                .await
                .is_ok_and(|reply| reply.status == 200)
            {
                return process;
            }
            pause(20).await;
        }
        panic!("it is never ready");
    }

    async fn send(&self, round: usize) {
        let url = format!("http://{}/charges", self.address);
        let one = |number: usize| {
            let key = format!("order-{round}-{}", number / 2);
            let (client, url) = (&self.client, &url);
            async move { drop(client.post(url, &key, "{}".to_owned()).await) }
        };
        let all = futures_util::stream::iter(0..400)
            .map(one)
            .buffer_unordered(8);
        all.collect::<Vec<()>>().await;
    }

    /// Waits until no copy is behind, and stays so: what is told of a request may come after its
    /// answer.
    async fn sent(&self) {
        let url = format!("http://{}/admin/v1/stats", self.admin);
        let mut quiet = 0;
        for _ in 0..1500 {
            let stats = self.client.get(&url).await.expect("an answer");
            let stats = stats.json();
            let copies = stats["audit"]["copies"].as_array().expect("copies");
            assert_eq!(copies.len(), 2, "{stats}");
            let is_there = |copy: &Value| copy["behind_bytes"] == 0 && copy["failing"] == false;
            let is_quiet = stats["audit"]["waiting"] == 0 && copies.iter().all(is_there);
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == 20 {
                return;
            }
            pause(20).await;
        }
        panic!("the copies stay behind");
    }
}

fn in_file(folder: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(folder.join("audit.jsonl")).expect("the file");
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .map(|entry| entry["event_id"].as_str().expect("an id").to_owned())
        .collect()
}

fn in_postgres(server: &PostgresServer) -> Vec<String> {
    let ids = server.sql("semel", "select event_id from semel_audit");
    ids.lines().map(str::to_owned).collect()
}

async fn in_nats(server: &NatsServer) -> Vec<String> {
    let client = async_nats::connect(server.url()).await.expect("a server");
    let stream = async_nats::jetstream::new(client)
        .get_stream("SEMEL_AUDIT")
        .await;
    let mut stream = stream.expect("the stream");
    let kept = stream.info().await.expect("about it").state.messages;
    let config = async_nats::jetstream::consumer::pull::OrderedConfig::default();
    let consumer = stream.create_consumer(config).await.expect("a reader");
    let messages = consumer.messages().await.expect("messages");
    let ids = messages
        .take(usize::try_from(kept).expect("few"))
        .map(|message| {
            let entry: Value =
                serde_json::from_slice(&message.expect("a message").payload).expect("JSON");
            entry["event_id"].as_str().expect("an id").to_owned()
        });
    ids.collect().await
}

#[tokio::test]
async fn killed_again_and_again_every_entry_of_the_file_arrives_and_duplicates_can_be_told() {
    let (postgres, nats) = (PostgresServer::start(&[]).await, NatsServer::start().await);
    let rig = Rig::new(&postgres, &nats).await;
    for round in 0..3 {
        let mut process = rig.start().await;
        // Killed while entries are on their way.
        tokio::join!(rig.send(round), async {
            pause(250).await;
            process.kill();
        });
    }
    let mut process = rig.start().await;
    rig.sent().await;
    process.kill();
    // Killed after the other side has it and before that is remembered: all of it comes again.
    for name in ["postgres", "nats"] {
        std::fs::remove_file(rig.folder.join(format!("audit.jsonl.{name}.position")))
            .expect("a position");
    }
    let _process = rig.start().await;
    rig.send(3).await;
    rig.sent().await;

    let metrics = rig
        .client
        .get(&format!("http://{}/metrics", rig.admin))
        .await;
    let metrics = metrics.expect("an answer");
    let metrics = metrics.text();
    for sink in ["postgres", "nats"] {
        let behind = format!("semel_audit_behind_bytes{{sink=\"{sink}\"}} 0");
        assert!(metrics.contains(&behind), "{metrics}");
        assert!(
            metrics.contains(&format!("semel_audit_sent_total{{sink=\"{sink}\"}}")),
            "{metrics}"
        );
    }
    let wanted = in_file(&rig.folder);
    assert!(wanted.len() > 400, "{} entries", wanted.len());
    let there = in_postgres(&postgres);
    assert_eq!(there.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(there.len(), wanted.len(), "each is there once");
    let there = in_nats(&nats).await;
    let told_apart: BTreeSet<String> = there.into_iter().collect();
    assert_eq!(told_apart, wanted);
}
