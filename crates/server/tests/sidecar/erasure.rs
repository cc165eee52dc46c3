//! Data keys of subjects that a header names, and their erasure (P48, P49).

use axum::Router;
use axum::extract::State as AppState;
use axum::routing::any;
use semel::DataSubject;
use semel::encrypted::EncryptionKey;
use semel_testkit::private::new_folder;

use crate::support::*;

async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let handler = |AppState(runs): AppState<Runs>| async move { format!("run {}", runs.begin()) };
    service(
        Router::new()
            .fallback(any(handler))
            .with_state(runs.clone()),
    )
    .await
}

fn charge(key: &str, subject: &str) -> axum::http::Request<axum::body::Body> {
    with(post("/charges", key, "{}"), "x-data-subject", subject)
}

#[tokio::test]
async fn subject_of_a_header_can_be_erased() {
    let runs = Runs::default();
    let upstream = counting(&runs).await;
    let keys = new_folder("keys").join("keys");
    let line = EncryptionKey::line(1, &[7; 32]);
    std::fs::write(&keys, line.as_bytes()).expect("a file");
    let settings = format!(
        "[store.encryption]\nkey_files = [\"{}\"]\ndata_keys = \"subject\"\n\
         subject_header = \"x-data-subject\"\n",
        keys.display()
    );
    let sidecar = Sidecar::new(upstream, &settings).await;
    for (key, subject) in [("k-1", "anna"), ("k-2", "ben")] {
        assert_eq!(sidecar.send(charge(key, subject)).await.status, 200);
    }
    // A replay needs no subject.
    for _ in 0..2 {
        let replayed = sidecar.send(post("/charges", "k-1", "{}")).await;
        assert_eq!((replayed.status.as_u16(), replayed.text()), (200, "run 1"));
    }
    let erased = sidecar.semel.erase("", DataSubject::new("anna").ok()).await;
    assert_eq!(erased.expect("an answer").destroyed, 1);
    let gone = sidecar.send(charge("k-1", "anna")).await;
    assert_eq!(gone.status, 410, "{}", gone.text());
    assert!(gone.text().contains("idempotency_answer_erased"));
    assert!(!gone.text().contains("anna"));
    let kept = sidecar.send(charge("k-2", "ben")).await;
    assert_eq!((kept.status.as_u16(), kept.text()), (200, "run 2"));
    assert_eq!(runs.count(), 2, "no effect ran again");
    // A subject that can't be used is refused, before the effect.
    let twice = with(charge("k-3", "anna"), "x-data-subject", "ben");
    for refused in [charge("k-3", ""), charge("k-3", &"x".repeat(257)), twice] {
        let refused = sidecar.send(refused).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    assert_eq!(runs.count(), 2);
}
