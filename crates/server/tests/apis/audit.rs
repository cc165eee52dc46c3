//! The audit trail: files, rotation, erasure, and gaps.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use semel::Semel;
use semel_core::BoxFuture;
use semel_server::audit::{
    AuditHistory, Draft, Entry, FileConfig, FileSink, Sink, Trail, TrailConfig,
};
use semel_testkit::private::new_folder;
use serde_json::json;

use crate::support::{OTHER, Server, call, pause};

#[tokio::test]
async fn trail_has_the_events_but_never_the_key() {
    let server = Server::start("memory://").await;
    let key = "a-key-that-must-not-be-shown";
    let ask = |payload: u32| json!({"scope": "charge", "key": key, "payload": payload, "actor": "agent_7"});
    let won = server.post("/v1/claims", ask(1)).await;
    let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
    let settle = json!({"token": token, "fence": fence, "outcome": "complete", "answer": {"body": "secret answer"}});
    server
        .post(&format!("/v1/claims/{id}/settle"), settle)
        .await;
    server.post("/v1/claims", ask(1)).await;
    server.post("/v1/claims", ask(2)).await;
    let lines = server.audited().await;
    let told: Vec<_> = lines
        .iter()
        .map(|l| (l["type"].as_str().unwrap(), l["code"].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("idempotency.key.created", None),
            ("idempotency.settled", None),
            ("idempotency.replay", Some("IDEMPOTENCY_HIT")),
            ("idempotency.conflict", Some("IDEMPOTENCY_KEY_COLLISION")),
        ]
    );
    for line in &lines {
        assert_eq!(
            (line["tenant"].as_str(), line["scope"].as_str()),
            (Some("acme"), Some("charge"))
        );
        assert_eq!(
            (line["id"].as_str(), line["actor"].as_str()),
            (Some(id.as_str()), Some("agent_7"))
        );
        let text = line.to_string();
        assert!(
            !text.contains(&key[..9]) && !text.contains("secret") && !text.contains(&token),
            "{text}"
        );
    }
    assert_eq!(lines[2]["detail"]["replay_number"], 1);
}

#[tokio::test]
async fn erasure_removes_the_name_and_runs_no_effect_again() {
    let server = Server::start("memory://").await;
    let ask = |actor: &str| json!({"scope": "s", "key": "k", "actor": actor});
    let won = server.post("/v1/claims", ask("ada@example.com")).await;
    let ((token, fence), id) = (won.lease(), won.text("id").to_owned());
    let settle = json!({"token": token, "fence": fence, "outcome": "complete"});
    server
        .post(&format!("/v1/claims/{id}/settle"), settle)
        .await;
    server.post("/v1/claims", ask("bob@example.com")).await;
    let erase = json!({"subject": "ada@example.com", "actor": "ops", "reason": "asked for it"});
    let erased = server.act("/admin/v1/erasures", erase).await;
    assert_eq!(
        (erased.status, erased.body["entries"].as_u64()),
        (200, Some(2)),
        "{}",
        erased.text
    );
    let lines = server.audited().await;
    let text = std::fs::read_to_string(&server.audit_file).unwrap();
    assert!(!text.contains("ada@") && text.contains("bob@example.com"));
    assert_eq!(
        lines
            .iter()
            .filter(|line| line["actor"] == "erased")
            .count(),
        2,
        "the entries stay"
    );
    let history = server.see(&format!("/admin/v1/records/{id}/history")).await;
    assert!(!history.text.contains("ada@"), "{}", history.text);
    assert_eq!(
        server.post("/v1/claims", ask("x")).await.status,
        200,
        "still done"
    );
    // Later entries are written after it.
    call(
        &server.api,
        "POST",
        "/v1/claims",
        Some(OTHER),
        &ask("later").to_string(),
    )
    .await;
    assert_eq!(server.audited().await.last().unwrap()["actor"], "later");
}

fn draft(actor: &str) -> Draft {
    Draft {
        kind: "test.entry",
        id: Some("ab".repeat(32)),
        actor: Some(actor.to_owned()),
        ..Draft::default()
    }
}

/// A trail with small files.
fn small_files(folder: &str) -> (PathBuf, FileSink, Trail) {
    let env = semel::tokio_env();
    let path = new_folder(folder).join("audit.jsonl");
    let config = FileConfig {
        max_bytes: 1000,
        ..FileConfig::new(&path)
    };
    let sink = FileSink::open(config, Arc::clone(&env.clock)).expect("a folder of our own");
    let trail = Trail::start(Arc::new(sink.clone()), TrailConfig::default(), env);
    (path, sink, trail)
}

#[tokio::test]
async fn full_files_are_rotated_searched_and_erased() {
    let (path, sink, trail) = small_files("rotate");
    for number in 0..30 {
        trail
            .record(draft(if number % 2 == 0 { "ada" } else { "bob" }))
            .await
            .unwrap();
    }
    let files = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert!(files() > 3, "{} files", files());
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        assert!(file.unwrap().metadata().unwrap().len() <= 1000);
    }
    let id = "ab".repeat(32);
    let all = sink.history(&id, 100).await.unwrap();
    assert_eq!((all.entries.len(), all.complete), (30, true));
    let last = sink.history(&id, 7).await.unwrap();
    assert_eq!(
        (last.entries.as_slice(), last.complete),
        (&all.entries[23..], false)
    );
    assert_eq!(trail.erase("ada").await.unwrap(), 15);
    let after = sink.history(&id, 100).await.unwrap();
    assert_eq!(
        after
            .entries
            .iter()
            .filter(|entry| entry.actor.as_deref() == Some("erased"))
            .count(),
        15
    );
}

#[tokio::test]
async fn missing_full_file_does_not_stop_the_trail() {
    let (path, _, trail) = small_files("gone");
    trail.record(draft("ada")).await.unwrap();
    // As after a rotation that failed to open a new file.
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    for _ in 0..30 {
        trail.record(draft("bob")).await.unwrap();
    }
    assert!(path.exists());
}

#[tokio::test]
async fn truncated_line_does_not_affect_others() {
    let env = semel::tokio_env();
    let path = new_folder("torn").join("audit.jsonl");
    std::fs::write(&path, r#"{"event_id":"x","ti"#).unwrap();
    let sink = FileSink::open(FileConfig::new(&path), Arc::clone(&env.clock)).unwrap();
    let trail = Trail::start(Arc::new(sink.clone()), TrailConfig::default(), env);
    trail.record(draft("ada")).await.unwrap();
    assert_eq!(
        sink.history(&"ab".repeat(32), 10)
            .await
            .unwrap()
            .entries
            .len(),
        1
    );
}

/// A sink that blocks until it is released, and can fail.
#[derive(Default)]
struct Stubborn {
    lines: Mutex<Vec<Entry>>,
    stands: AtomicBool,
    broken: AtomicBool,
}

impl Sink for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }

    fn write<'a>(&'a self, batch: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            while self.stands.load(Ordering::SeqCst) {
                pause(Duration::from_millis(5)).await;
            }
            if self.broken.load(Ordering::SeqCst) {
                return Err(io::Error::other("broken"));
            }
            self.lines.lock().extend_from_slice(batch);
            Ok(())
        })
    }

    fn erase<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn history<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, io::Result<AuditHistory>> {
        Box::pin(std::future::ready(Ok(AuditHistory::default())))
    }
}

#[tokio::test]
async fn full_queue_never_blocks_effects_and_reports_the_gap() {
    let sink = Arc::new(Stubborn::default());
    sink.stands.store(true, Ordering::SeqCst);
    let config = TrailConfig {
        queue: 10,
        ..TrailConfig::default()
    };
    let trail = Trail::start(sink.clone(), config, semel::tokio_env());
    let semel = Semel::builder()
        .observer(Arc::new(trail.clone()))
        .open("memory://")
        .await
        .unwrap();
    let runs = 1000;
    for number in 0..runs {
        let call = semel
            .operation("s")
            .key(&format!("k-{number}"))
            .no_payload();
        // Two entries for each run: claimed and settled.
        call.run(|_| async { Ok::<_, io::Error>(()) })
            .await
            .unwrap();
    }
    assert!(trail.lost() > 0);
    sink.stands.store(false, Ordering::SeqCst);
    trail.flush().await;
    trail.record(draft("ops")).await.unwrap();
    let lines = sink.lines.lock();
    let gaps = lines.iter().filter(|entry| entry.kind == "audit.gap");
    let told: u64 = gaps
        .clone()
        .map(|entry| entry.detail["lost"].as_u64().unwrap())
        .sum();
    let kept = lines
        .iter()
        .filter(|entry| entry.kind.starts_with("idempotency."))
        .count() as u64;
    assert_eq!(told, trail.lost(), "every loss is told");
    assert_eq!(kept + told, 2 * runs, "and nothing else is missing");
}

#[tokio::test]
async fn change_without_audit_is_not_made() {
    let sink = Arc::new(Stubborn::default());
    sink.broken.store(true, Ordering::SeqCst);
    let trail = Trail::start(sink, TrailConfig::default(), semel::tokio_env());
    let semel = Semel::open("memory://").await.unwrap();
    let call = semel.operation("s").key("k").no_payload();
    call.run(|_| async { Ok::<_, io::Error>("done".to_owned()) })
        .await
        .unwrap();
    let listed = semel
        .store()
        .list(&semel_core::store::Query::default())
        .await
        .unwrap();
    let (identity, record) = listed.records.first().unwrap();
    let credential = semel_server::operators::Credential::None;
    let state =
        semel_server::admin::AdminState::new(semel.clone(), trail, credential, Default::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, semel_server::admin::router(state)).await });
    let id: String = identity
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let reset = json!({"fence": record.fence.0, "actor": "ops", "reason": "a test"}).to_string();
    let reply = call_reset(&address, &id, &reset).await;
    assert_eq!(
        (reply.status, reply.code()),
        (503, "audit_unavailable"),
        "{}",
        reply.text
    );
    assert!(
        semel.store().read(identity).await.unwrap().is_some(),
        "nothing was changed"
    );
}

async fn call_reset(address: &str, id: &str, body: &str) -> crate::support::Reply {
    call(
        address,
        "POST",
        &format!("/admin/v1/records/{id}/reset"),
        None,
        body,
    )
    .await
}
