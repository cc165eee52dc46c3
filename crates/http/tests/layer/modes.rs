//! Observe and off (P39).

use axum::Router;
use axum::routing::post as on_post;
use semel::Mode;
use semel::http::{BodyLimits, Route};
use semel_core::Code;
use semel_core::event::{ShadowDecision, Step};

use crate::support::*;

fn count(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler =
        move |body: axum::body::Bytes| async move { format!("{} {}", runs.begin(), body.len()) };
    Router::new().route("/", on_post(handler))
}

#[tokio::test]
async fn observe_mode_runs_everything_and_reports_decisions() {
    let runs = Runs::default();
    let limits = BodyLimits::default().with_request_bytes(100);
    let route = Route::new()
        .mode(Mode::Observe)
        .require_key()
        .limits(limits);
    let rig = Rig::with(route, count(&runs)).await;
    let large = "x".repeat(200);
    let requests = [
        (post("/", "k", "{}"), None),
        (post("/", "k", "{}"), Some(ShadowDecision::Replay)),
        (post("/", "k", "[]"), Some(ShadowDecision::Mismatch)),
        (
            without_key(post("/", "", "{}")),
            Some(ShadowDecision::Refuse(Code::KeyRequired)),
        ),
        (
            post("/", "no key", "{}"),
            Some(ShadowDecision::Refuse(Code::KeyInvalid)),
        ),
        (
            post("/", "k", "{]"),
            Some(ShadowDecision::Refuse(Code::PayloadInvalid)),
        ),
        (
            post("/", "l", large.clone()),
            Some(ShadowDecision::Refuse(Code::BodyTooLarge)),
        ),
    ];
    for (n, (request, would)) in requests.into_iter().enumerate() {
        let answer = rig.send(request).await;
        assert_eq!(answer.status, 200);
        assert!(
            answer.text().starts_with(&format!("{} ", n + 1)),
            "{}",
            answer.text()
        );
        assert!(!answer.is_replay());
        if let Some(would) = would {
            assert_eq!(
                rig.log
                    .count(|step| *step == Step::Observed { decision: would }),
                1,
                "{would:?}"
            );
        }
    }
    // What was read to look at it is handed on whole.
    assert!(
        rig.send(post("/", "l", large))
            .await
            .text()
            .ends_with(" 200")
    );
}

#[tokio::test]
async fn off_mode_reads_nothing() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().mode(Mode::Off).require_key(), count(&runs)).await;
    for _ in 0..2 {
        rig.send(post("/", "k", "{}")).await;
    }
    assert_eq!(rig.send(post("/", "no key", "{}")).await.status, 200);
    assert_eq!(runs.begun(), 3);
    assert_eq!(rig.semel.store().stats().await.unwrap().records, 0);
}
