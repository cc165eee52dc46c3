//! Callers that leave: before, during and after.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::routing::post as on_post;
use tokio::io::AsyncWriteExt as _;

use crate::support::*;

/// Takes `millis`.
fn slow(runs: &Runs, millis: u64) -> Router {
    let runs = runs.clone();
    let handler = move |_: Bytes| async move {
        let n = runs.begin();
        pause(millis).await;
        runs.end();
        (StatusCode::CREATED, format!("run {n}"))
    };
    Router::new().route("/", on_post(handler))
}

const REQUEST: &str = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                       idempotency-key: k\r\ncontent-length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_caller_may_leave_at_every_byte_of_its_request() {
    let runs = Runs::default();
    let rig = Rig::new(slow(&runs, 200)).await;
    for length in 0..REQUEST.len() {
        let mut raw = rig.raw().await;
        raw.write(&REQUEST[..length]).await;
        drop(raw);
    }
    pause(100).await;
    assert_eq!((runs.begun(), rig.semel.engine().running()), (0, 0));
    assert_eq!(
        rig.semel.store().stats().await.unwrap().records,
        0,
        "no key is held"
    );
    // Sent whole, and gone: it runs to its end, and the retry gets the answer.
    let mut raw = rig.raw().await;
    raw.write(REQUEST).await;
    raw.stream.shutdown().await.unwrap();
    drop(raw);
    until("it runs", || runs.begun() == 1).await;
    until("it ends", || runs.ended() == 1).await;
    let retry = rig.send(post("/", "k", "{}")).await;
    assert!(retry.is_replay());
    assert_eq!((retry.text(), runs.begun()), ("run 1", 1));
}

#[tokio::test]
async fn a_caller_may_leave_at_any_time_while_the_handler_runs() {
    for millis in [0, 20, 60, 120, 190, 210] {
        let runs = Runs::default();
        let rig = Rig::new(slow(&runs, 200)).await;
        let mut raw = rig.raw().await;
        raw.write(REQUEST).await;
        pause(millis).await;
        drop(raw);
        let retry = rig.send(post("/", "k", "{}")).await;
        assert_eq!(
            (retry.text(), runs.begun(), runs.ended()),
            ("run 1", 1, 1),
            "{millis}"
        );
        until("all is over", || rig.semel.engine().running() == 0).await;
        assert_eq!(rig.semel.engine().waiting(), 0);
    }
}

#[tokio::test]
async fn a_reset_stream_does_not_stop_the_work() {
    let runs = Runs::default();
    let rig = Rig::new(slow(&runs, 200)).await;
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = axum::http::Request::post("http://test/")
        .header("content-type", "application/json")
        .header("idempotency-key", "k");
    let (response, mut body) = client
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    body.send_data(Bytes::from("{}"), true).unwrap();
    until("it runs", || runs.begun() == 1).await;
    body.send_reset(h2::Reason::CANCEL);
    assert!(response.await.is_err());
    let retry = rig
        .client(Protocol::Http2)
        .await
        .send(post("/", "k", "{}"))
        .await;
    assert!(retry.is_replay());
    assert_eq!((retry.text(), runs.begun(), runs.ended()), ("run 1", 1, 1));
}

#[tokio::test]
async fn a_stream_reset_before_its_body_is_whole_starts_nothing() {
    let runs = Runs::default();
    let rig = Rig::new(slow(&runs, 200)).await;
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = axum::http::Request::post("http://test/").header("idempotency-key", "k");
    let (response, mut body) = client
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    body.send_data(Bytes::from("{"), false).unwrap();
    pause(50).await;
    body.send_reset(h2::Reason::CANCEL);
    assert!(response.await.is_err());
    pause(50).await;
    assert_eq!(runs.begun(), 0);
    assert_eq!(rig.semel.store().stats().await.unwrap().records, 0);
}

#[tokio::test]
async fn a_waiting_duplicate_may_leave_too() {
    let runs = Runs::default();
    let rig = Rig::new(slow(&runs, 1_000)).await;
    let mut first = rig.raw().await;
    first.write(REQUEST).await;
    until("it runs", || runs.begun() == 1).await;
    let mut second = rig.raw().await;
    second.write(REQUEST).await;
    until("it waits", || rig.semel.engine().waiting() == 1).await;
    drop(second);
    assert!(first.answer().await.unwrap().0.starts_with("http/1.1 201"));
    until("nobody waits", || rig.semel.engine().waiting() == 0).await;
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn caller_may_leave_during_a_streamed_response() {
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move || async move {
        counted.begin();
        let pieces = futures_util::stream::unfold(0, |n| async move {
            pause(20).await;
            (n < 50).then(|| (Ok::<_, std::io::Error>(Bytes::from("data: x\n\n")), n + 1))
        });
        (
            [("content-type", "text/event-stream")],
            Body::from_stream(pieces),
        )
    };
    let rig = Rig::new(Router::new().route("/", on_post(handler))).await;
    let mut raw = rig.raw().await;
    raw.write(REQUEST).await;
    assert!(raw.answer().await.unwrap().0.starts_with("http/1.1 200"));
    drop(raw);
    let retry = rig.send(post("/", "k", "{}")).await;
    assert_eq!(retry.header("idempotent-not-kept"), Some("body"));
    assert_eq!(runs.begun(), 1);
    let idle = tokio::time::timeout(Duration::from_secs(5), rig.semel.idle());
    idle.await.unwrap();
}
