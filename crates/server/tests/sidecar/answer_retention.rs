//! Responses that are replayed for a shorter time than their records are kept (P50).

use std::time::Duration;

use axum::Router;
use axum::extract::State as AppState;
use axum::routing::any;
use semel::DataSubject;
use semel::core::engine::ANSWER_SCOPE;
use semel::core::store::Query;
use semel::core::{Record, RecordError};
use semel::encrypted::EncryptionKey;
use semel_testkit::private::new_folder;

use crate::support::*;

const SHORT: &str = "engine.cache_age = \"1ms\"\n[defaults]\nanswer_retention = \"1s\"\n";

async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let handler = |AppState(runs): AppState<Runs>| async move { format!("run {}", runs.begin()) };
    let routes = Router::new().fallback(any(handler));
    service(routes.with_state(runs.clone())).await
}

async fn apart(sidecar: &Sidecar) -> Vec<Record> {
    let query = Query::default().with_scope(ANSWER_SCOPE.to_owned());
    let page = sidecar.semel.store().list(&query).await.expect("a page");
    page.records.into_iter().map(|(_, record)| record).collect()
}

async fn until_expired(sidecar: &Sidecar, key: &'static str) -> Answer {
    let clock = semel::tokio_env().clock;
    for _ in 0..100 {
        let answer = sidecar.send(post("/charges", key, "{}")).await;
        if answer.status != 200 {
            return answer;
        }
        assert!(answer.is_replay());
        clock.sleep(Duration::from_millis(100)).await;
    }
    panic!("the response was replayed for ten seconds");
}

#[tokio::test]
async fn expired_response_is_gone_and_nothing_runs() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, SHORT).await;
    for is_replay in [false, true] {
        let answer = sidecar.send(post("/charges", "k-1", "{}")).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "run 1"));
        assert_eq!(answer.is_replay(), is_replay);
    }
    let gone = until_expired(&sidecar, "k-1").await;
    assert_eq!(gone.status, 410, "{}", gone.text());
    assert!(gone.text().contains("idempotency_answer_expired"));
    let conflict = sidecar.send(post("/charges", "k-1", "{\"a\":1}")).await;
    assert_eq!(conflict.status, 422, "{}", conflict.text());
    assert_eq!(runs.count(), 1, "no effect ran again");
    assert!(apart(&sidecar).await.is_empty());
    assert_eq!(sidecar.keys(semel::core::State::Completed).await, 1);
}

#[tokio::test]
async fn erased_subject_takes_the_response_along() {
    let runs = Runs::default();
    let upstream = counting(&runs).await;
    let keys = new_folder("keys").join("keys");
    let line = EncryptionKey::line(1, &[7; 32]);
    std::fs::write(&keys, line.as_bytes()).expect("a file");
    let settings = format!(
        "[defaults]\nanswer_retention = \"1h\"\n[store.encryption]\nkey_files = [\"{}\"]\n\
         data_keys = \"subject\"\nsubject_header = \"x-data-subject\"\nrefuse_plain = true\n",
        keys.display()
    );
    let sidecar = Sidecar::new(upstream, &settings).await;
    let charge = || with(post("/charges", "k-1", "{}"), "x-data-subject", "anna");
    for _ in 0..2 {
        let answer = sidecar.send(charge()).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "run 1"));
    }
    let readable = &apart(&sidecar).await[0];
    assert_eq!(readable.locked(), None);
    let erased = sidecar.semel.erase("", DataSubject::new("anna").ok()).await;
    assert_eq!(erased.expect("an answer").destroyed, 1);
    // The response itself, and not only the record that names it.
    let erased = &apart(&sidecar).await[0];
    assert_eq!(erased.locked(), Some(RecordError::Erased));
    let gone = sidecar.send(charge()).await;
    assert_eq!(gone.status, 410, "{}", gone.text());
    assert!(gone.text().contains("idempotency_answer_erased"));
    assert_eq!(runs.count(), 1);
}
