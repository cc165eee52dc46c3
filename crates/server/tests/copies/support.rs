//! A trail with copies, and their content.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream;
use futures_util::StreamExt as _;
use semel_server::audit::{
    CopyStatus, Draft, Entry, FileConfig, FileSink, NatsConfig, ReplicatedSink, Sink, SyncMode,
    Trail, TrailConfig,
};
use semel_testkit::private::{NatsServer, new_folder};
use serde_json::{Map, json};

#[expect(clippy::disallowed_methods, reason = "real servers run on real time")]
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Waits for a condition.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_200 {
        if is_so() {
            return;
        }
        pause().await;
    }
    panic!("that never came to be");
}

pub(crate) fn nats(server: &NatsServer) -> NatsConfig {
    NatsConfig {
        url: server.url(),
        credentials_file: None,
        stream: "SEMEL_AUDIT".to_owned(),
        subject: "semel.audit".to_owned(),
        retention: Duration::from_secs(90 * 24 * 60 * 60),
    }
}

/// The stream and its number of messages.
pub(crate) async fn nats_stream(server: &NatsServer) -> (jetstream::stream::Stream, u64) {
    let client = async_nats::connect(server.url()).await.expect("a server");
    let stream = jetstream::new(client).get_stream("SEMEL_AUDIT").await;
    let mut stream = stream.expect("the stream");
    let kept = stream.info().await.expect("about it").state.messages;
    (stream, kept)
}

/// All messages of the stream.
pub(crate) async fn nats_entries(server: &NatsServer) -> Vec<Entry> {
    let (stream, kept) = nats_stream(server).await;
    let config = jetstream::consumer::pull::OrderedConfig::default();
    let consumer = stream.create_consumer(config).await.expect("a reader");
    let messages = consumer.messages().await.expect("messages");
    let messages = messages.take(usize::try_from(kept).expect("few"));
    let read = messages.map(|message| {
        let message = message.expect("a message");
        let entry: Entry = serde_json::from_slice(&message.payload).expect("an entry");
        let headers = message.headers.as_ref().expect("headers");
        let id = headers.get("Nats-Msg-Id").expect("an id");
        assert_eq!(id.as_str(), entry.event_id, "a duplicate can be told");
        entry
    });
    read.collect().await
}

/// An entry of a day.
pub(crate) fn entry(number: usize, day: &str, actor: Option<&str>) -> Entry {
    Entry {
        event_id: format!("{:016x}-{number}", 0),
        time: format!("{day}T12:00:{:02}.{:06}Z", number % 60, number),
        kind: "idempotency.replay".to_owned(),
        code: Some("IDEMPOTENCY_HIT".to_owned()),
        environment: "test".to_owned(),
        tenant: "acme".to_owned(),
        scope: "charge".to_owned(),
        operation: None,
        key_prefix: None,
        id: Some("ab12".to_owned()),
        actor: actor.map(str::to_owned),
        detail: Map::from_iter([("replay_number".to_owned(), json!(number))]),
        chain: None,
    }
}

/// A trail in a temporary file, with copies.
pub(crate) struct Trailing {
    pub(crate) trail: Trail,
    folder: PathBuf,
    sinks: Vec<Weak<dyn Sink>>,
}

impl Trailing {
    pub(crate) fn start(copies: Vec<Arc<dyn Sink>>) -> Self {
        Self::again(new_folder("copies"), copies)
    }

    pub(crate) fn again(folder: PathBuf, copies: Vec<Arc<dyn Sink>>) -> Self {
        let env = semel::tokio_env();
        let sinks = copies.iter().map(Arc::downgrade).collect();
        let mut config = FileConfig::new(folder.join("audit.jsonl"));
        config.sync = SyncMode::Never;
        // Small files, so that they are rotated during the replication.
        config.max_bytes = 64 * 1024;
        let files = FileSink::open(config, Arc::clone(&env.clock)).expect("a file");
        let sink = ReplicatedSink::start(files, copies, &env);
        let trail = Trail::start(Arc::new(sink), TrailConfig::default(), env);
        Self {
            trail,
            folder,
            sinks,
        }
    }

    pub(crate) async fn write(&self, many: usize) {
        self.act("somebody", many).await;
    }

    /// Writes many entries of an actor.
    pub(crate) async fn act(&self, actor: &str, many: usize) {
        let record = |number: usize| {
            let draft = Draft {
                kind: "idempotency.test",
                actor: Some(actor.to_owned()),
                detail: Map::from_iter([("number".to_owned(), json!(number))]),
                ..Draft::default()
            };
            self.trail.record(draft)
        };
        let all = futures_util::stream::iter(0..many)
            .map(record)
            .buffer_unordered(64);
        all.for_each(|written| async move { written.expect("the file takes it") })
            .await;
    }

    /// The only copy.
    pub(crate) fn copy(&self) -> CopyStatus {
        self.trail.copies().pop().expect("a copy")
    }

    /// The ids of all entries in the files, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        for file in std::fs::read_dir(&self.folder).expect("the folder") {
            let path = file.expect("a file").path();
            let name = path.to_string_lossy();
            if name.contains("position") || name.ends_with(".key") {
                continue;
            }
            let text = std::fs::read_to_string(path).expect("text");
            let read = |line: &str| {
                serde_json::from_str::<Entry>(line)
                    .expect("an entry")
                    .event_id
            };
            ids.extend(text.lines().map(read));
        }
        ids.sort_unstable();
        ids
    }

    /// Ends the trail and the tasks that copy it, and returns the path of its files. A task that
    /// is still there could copy what the next trail writes, and save its position.
    pub(crate) async fn end(self) -> PathBuf {
        self.trail.flush().await;
        drop(self.trail);
        until(|| self.sinks.iter().all(|sink| sink.strong_count() == 0)).await;
        self.folder
    }
}
