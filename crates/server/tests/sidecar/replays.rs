//! The authorization of replays, and the quota of new keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{any, get};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

use crate::support::*;

/// A service that answers with the number of its run.
async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let handler = |State(runs): State<Runs>| async move {
        runs.begin();
        "done"
    };
    service(
        Router::new()
            .fallback(any(handler))
            .with_state(runs.clone()),
    )
    .await
}

/// An authorization service with a status that a test sets. It refuses questions without the
/// caller's credential.
async fn authorizer(status: &Arc<AtomicU16>) -> std::net::SocketAddr {
    let handler = |State(status): State<Arc<AtomicU16>>, headers: HeaderMap| async move {
        let is_whole = headers
            .get("authorization")
            .is_some_and(|value| value == "Bearer t")
            && headers["x-original-method"] == "POST"
            && headers["x-original-uri"] == "/charges"
            && !headers.contains_key("content-length");
        match is_whole {
            true => StatusCode::from_u16(status.load(Ordering::SeqCst)).expect("a status"),
            false => StatusCode::IM_A_TEAPOT,
        }
    };
    service(
        Router::new()
            .route("/check", get(handler))
            .with_state(Arc::clone(status)),
    )
    .await
}

fn charge() -> axum::http::Request<axum::body::Body> {
    with(post("/charges", "k-1", "{}"), "authorization", "Bearer t")
}

#[tokio::test]
async fn replay_needs_the_authorization_of_now() {
    let (runs, status) = (Runs::default(), Arc::new(AtomicU16::new(200)));
    let settings = format!(
        "defaults.replay_auth_url = \"http://{}/check\"\n",
        authorizer(&status).await
    );
    let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
    assert_eq!(sidecar.send(charge()).await.status, 200);
    let replay = sidecar.send(charge()).await;
    assert_eq!(replay.status, 200);
    assert_eq!((replay.is_replay(), replay.text()), (true, "done"));
    for (answers, code, retryable) in [
        (401, "unauthorized", false),
        (403, "forbidden", false),
        (500, "replay_authorization_unavailable", true),
    ] {
        status.store(answers, Ordering::SeqCst);
        let refused = sidecar.send(charge()).await.problem_and_retry();
        let expected = if answers == 500 { 503 } else { answers };
        assert_eq!(refused, (expected, code.to_owned(), retryable));
    }
    assert_eq!(runs.count(), 1, "no refused replay runs anything");
}

#[tokio::test]
async fn quota_refuses_new_keys_and_answers_old_ones() {
    let runs = Runs::default();
    let settings =
        "tenants.from = \"host\"\nlimits.tenant_keys = 2\nlimits.quota_window = \"1h\"\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    let send = |host: &'static str, key: &'static str| {
        let mut request = post("/charges", key, "{}");
        let host = axum::http::HeaderValue::from_static(host);
        request.headers_mut().insert("host", host);
        sidecar.send(request)
    };
    assert_eq!(send("a.example", "k-1").await.status, 200);
    assert_eq!(send("a.example", "k-2").await.status, 200);
    let refused = send("a.example", "k-3").await.problem_and_retry();
    assert_eq!(
        refused,
        (429, "idempotency_quota_exceeded".to_owned(), true)
    );
    assert_eq!(send("a.example", "k-1").await.status, 200, "a replay");
    assert_eq!(send("b.example", "k-3").await.status, 200, "another tenant");
    assert_eq!(runs.count(), 3);
}

/// A client that sends and leaves must not escape the quota.
#[tokio::test]
async fn quota_counts_requests_whose_clients_have_left() {
    let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let handler = |State((runs, gate)): State<(Runs, Arc<Semaphore>)>| async move {
        runs.begin();
        gate.acquire().await.expect("open").forget();
        "done"
    };
    let slow = Router::new()
        .fallback(any(handler))
        .with_state((runs.clone(), Arc::clone(&gate)));
    let settings = "tenants.from = \"host\"\nlimits.tenant_keys = 1\n";
    let sidecar = Sidecar::new(service(slow).await, settings).await;
    let mut stream = tokio::net::TcpStream::connect(sidecar.address)
        .await
        .expect("a connection");
    let request = "POST /charges HTTP/1.1\r\nhost: a.example\r\nidempotency-key: k-1\r\n\
                   content-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).await.expect("sent");
    until("the service has the request", || runs.count() == 1).await;
    drop(stream);
    gate.add_permits(10);
    let send = |key: &'static str| {
        let mut request = post("/charges", key, "{}");
        let host = axum::http::HeaderValue::from_static("a.example");
        request.headers_mut().insert("host", host);
        sidecar.send(request)
    };
    assert_eq!(send("k-1").await.status, 200, "its answer was kept");
    let refused = send("k-2").await.problem_and_retry();
    assert_eq!(
        refused,
        (429, "idempotency_quota_exceeded".to_owned(), true)
    );
    assert_eq!(runs.count(), 1);
}

/// A replayed page is as protected in a browser as the first one was.
#[tokio::test]
async fn replay_keeps_the_headers_that_protect_browsers() {
    let protective = [
        ("content-security-policy", "default-src 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("strict-transport-security", "max-age=63072000"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
    ];
    let handler = move || async move { (axum::response::AppendHeaders(protective), "<p>done") };
    let upstream = service(Router::new().fallback(any(handler))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for is_replay in [false, true] {
        let answer = sidecar.send(post("/page", "k-1", "{}")).await;
        assert_eq!(answer.is_replay(), is_replay);
        for (name, value) in protective {
            assert_eq!(answer.header(name), Some(value), "{name}, {is_replay}");
        }
    }
}
