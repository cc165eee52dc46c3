//! What a handler holds: the lease.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post as on_post;
use parking_lot::Mutex;
use semel::http::HandlerLease;
use std::sync::Arc;

use crate::support::*;

#[tokio::test]
async fn handler_sees_fence_attempt_and_a_stable_downstream_key() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let handler = move |lease: HandlerLease| async move {
        lease
            .checkpoint("half-way")
            .await
            .expect("the lease is ours");
        let mut seen = noted.lock();
        seen.push((lease.fence(), lease.attempt(), lease.derive_key("psp")));
        if seen.len() == 1 {
            StatusCode::BAD_GATEWAY
        } else {
            StatusCode::OK
        }
    };
    let rig = Rig::new(Router::new().route("/", on_post(handler))).await;
    assert_eq!(rig.send(post("/", "k", "{}")).await.status, 502);
    assert_eq!(rig.send(post("/", "k", "{}")).await.status, 200);
    let seen = seen.lock();
    let [(first_fence, 1, first), (second_fence, 1, second)] = &seen[..] else {
        panic!("two runs, each the first since the key was free: {seen:?}");
    };
    assert!(second_fence > first_fence);
    assert_eq!(first, second);
    assert!(first.starts_with("semel-"));
}

#[tokio::test]
async fn an_optional_lease_takes_requests_without_a_key() {
    let handler = |lease: Option<HandlerLease>| async move { lease.is_some().to_string() };
    let rig = Rig::new(Router::new().route("/", on_post(handler))).await;
    assert_eq!(rig.send(post("/", "k", "{}")).await.text(), "true");
    assert_eq!(
        rig.send(without_key(post("/", "", "{}"))).await.text(),
        "false"
    );
}

#[tokio::test]
async fn handler_with_a_lease_refuses_requests_without_a_key() {
    let handler = |_: HandlerLease| async { "ran" };
    let rig = Rig::new(Router::new().route("/", on_post(handler))).await;
    let told = rig.send(without_key(post("/", "", "{}"))).await;
    assert_eq!(told.problem(), (400, "idempotency_key_required".to_owned()));
}

#[tokio::test]
async fn lease_without_a_layer_is_a_server_error() {
    let handler = |_: HandlerLease| async { "ran" };
    let address = serve(Router::new().route("/", on_post(handler))).await;
    let mut client = Client::connect(address, Protocol::Http1).await;
    let told = client.send(post("/", "k", "{}")).await;
    assert_eq!(told.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(told.text().contains("no idempotency layer covers"));
}
