//! Request bodies: chunked, expected, too large, too slow, broken off; and what is left of them on
//! the connection after a refusal.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post as on_post;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use semel::http::{BodyLimits, Route};

use crate::support::*;

/// Answers with the length of the body.
fn lengths(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move |body: Bytes| async move {
        runs.begin();
        (StatusCode::CREATED, body.len().to_string())
    };
    Router::new().route("/", on_post(handler))
}

fn small() -> Route {
    Route::new().limits(
        BodyLimits::default()
            .with_request_bytes(1000)
            .with_request_time(Duration::from_millis(300))
            .with_drain_bytes(4000),
    )
}

const HEAD: &str = "POST / HTTP/1.1\r\nhost: test\r\nidempotency-key: k\r\n";

#[tokio::test]
async fn a_chunked_body_is_the_same_request_as_a_whole_one() {
    let runs = Runs::default();
    let rig = Rig::new(lengths(&runs)).await;
    let mut raw = rig.raw().await;
    raw.write(&format!(
        "{HEAD}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    ))
    .await;
    let (head, body) = raw.answer().await.unwrap();
    assert!(head.starts_with("http/1.1 201") && body == "5", "{head}");
    // On the same connection, in one piece.
    raw.write(&format!("{HEAD}content-length: 5\r\n\r\nabcde"))
        .await;
    let (head, body) = raw.answer().await.unwrap();
    assert!(
        head.contains("idempotent-replayed: true") && body == "5",
        "{head}"
    );
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn expect_continue_is_answered_before_the_body_is_sent() {
    let runs = Runs::default();
    let rig = Rig::new(lengths(&runs)).await;
    let mut raw = rig.raw().await;
    raw.write(&format!(
        "{HEAD}expect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    ))
    .await;
    let (head, _) = raw.answer().await.unwrap();
    assert_eq!(head, "http/1.1 100 continue");
    raw.write("abc").await;
    let (head, body) = raw.answer().await.unwrap();
    assert!(head.starts_with("http/1.1 201") && body == "3", "{head}");
}

#[tokio::test]
async fn expect_continue_is_refused_without_reading_the_body() {
    let runs = Runs::default();
    let rig = Rig::with(small(), lengths(&runs)).await;
    for (key, status) in [("no key", 400), ("k", 413)] {
        let mut raw = rig.raw().await;
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\nidempotency-key: {key}\r\n");
        raw.write(&format!(
            "{head}expect: 100-continue\r\ncontent-length: 2000\r\n\r\n"
        ))
        .await;
        let (head, _) = raw.answer().await.unwrap();
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        assert!(head.contains("connection: close"), "{head}");
        assert!(raw.is_closed().await);
    }
    assert_eq!(runs.begun(), 0);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_nothing_runs() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::with(small(), lengths(&runs)).await;
        let known = post("/", "k", "x".repeat(1001));
        let pieces = [vec![b'x'; 600], vec![b'x'; 600]];
        let pieces = pieces.map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        let unknown = post(
            "/",
            "k",
            Body::from_stream(futures_util::stream::iter(pieces)),
        );
        for request in [known, unknown] {
            let answer = rig.client(protocol).await.send(request).await;
            assert_eq!(
                answer.problem(),
                (413, "idempotency_body_too_large".to_owned())
            );
        }
        let exact = rig
            .client(protocol)
            .await
            .send(post("/", "k", "x".repeat(1000)))
            .await;
        // Not JSON, though it says so: refused for that, not for its size.
        assert_eq!(exact.problem().1, "idempotency_payload_invalid");
        assert_eq!(runs.begun(), 0);
    }
}

#[tokio::test]
async fn slow_body_is_refused_and_the_connection_closed() {
    let runs = Runs::default();
    let rig = Rig::with(small(), lengths(&runs)).await;
    let mut raw = rig.raw().await;
    raw.write(&format!("{HEAD}content-length: 500\r\n\r\n"))
        .await;
    for _ in 0..5 {
        raw.write("x").await;
        pause(80).await;
    }
    let (head, body) = raw.answer().await.unwrap();
    assert!(
        head.starts_with("http/1.1 408") && head.contains("connection: close"),
        "{head}"
    );
    assert!(body.contains("idempotency_body_slow"));
    assert!(raw.is_closed().await);
    assert_eq!(runs.begun(), 0);
}

#[tokio::test]
async fn a_body_that_breaks_off_starts_nothing() {
    let observed = || Route::new().mode(semel::Mode::Observe);
    for (protocol, is_observed) in BOTH.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let runs = Runs::default();
        let route = if is_observed {
            observed()
        } else {
            Route::new()
        };
        let rig = Rig::with(route, lengths(&runs)).await;
        let pieces = [Ok(Bytes::from("abc")), Err(std::io::Error::other("gone"))];
        let broken = post(
            "/",
            "k",
            Body::from_stream(futures_util::stream::iter(pieces)),
        );
        let mut client = rig.client(protocol).await;
        let sent = tokio::spawn(async move { client.begin(broken).await });
        assert!(sent.await.is_err(), "there is nobody to answer");
        pause(50).await;
        assert_eq!((runs.begun(), rig.semel.engine().running()), (0, 0));
        if is_observed {
            continue;
        }
        // The key is as new.
        let retry = rig.send(with(post("/", "k", "abc"), "x-a", "b")).await;
        assert_eq!(retry.status, StatusCode::BAD_REQUEST, "not JSON");
        assert_eq!(rig.send(post("/", "k", "[1]")).await.text(), "3");
    }
}

#[tokio::test]
async fn refused_body_is_not_read_as_the_next_request() {
    let runs = Runs::default();
    let rig = Rig::with(small(), lengths(&runs)).await;
    let smuggled = format!("{HEAD}content-length: 1\r\n\r\nx");
    let refused = "POST / HTTP/1.1\r\nhost: test\r\nidempotency-key: no key\r\n";
    // Small enough to be drained: the connection goes on with the request that really comes next.
    let mut raw = rig.raw().await;
    let length = smuggled.len();
    raw.write(&format!(
        "{refused}content-length: {length}\r\n\r\n{smuggled}"
    ))
    .await;
    raw.write(&format!("{HEAD}content-length: 2\r\n\r\nok"))
        .await;
    let (head, _) = raw.answer().await.unwrap();
    assert!(
        head.starts_with("http/1.1 400") && !head.contains("connection: close"),
        "{head}"
    );
    let (head, body) = raw.answer().await.unwrap();
    assert!(
        head.starts_with("http/1.1 201") && body == "2",
        "{head} {body}"
    );
    assert_eq!(runs.begun(), 1);
    // Too large to be drained: the connection ends there.
    for (framing, padding) in [
        ("content-length: 100000", ""),
        ("transfer-encoding: chunked", "1\r\nx\r\n"),
    ] {
        let mut raw = rig.raw().await;
        raw.write(&format!("{refused}{framing}\r\n\r\n{padding}"))
            .await;
        if framing.starts_with("transfer") {
            raw.write(&format!("1388\r\n{}\r\n", "x".repeat(5000)))
                .await;
        }
        let (head, _) = raw.answer().await.unwrap();
        assert!(
            head.starts_with("http/1.1 400") && head.contains("connection: close"),
            "{head}"
        );
        let _ = tokio::io::AsyncWriteExt::write_all(&mut raw.stream, smuggled.as_bytes()).await;
        assert!(raw.is_closed().await);
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn an_http_2_connection_outlives_a_refused_stream() {
    let runs = Runs::default();
    let rig = Rig::with(small(), lengths(&runs)).await;
    let mut client = rig.client(Protocol::Http2).await;
    for _ in 0..3 {
        let refused = client.send(post("/", "no key", "x".repeat(60_000))).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert_eq!(
            refused.header("connection"),
            None,
            "HTTP/2 has no such header"
        );
    }
    assert_eq!(client.send(post("/", "k", "[1]")).await.text(), "3");
}

#[tokio::test]
async fn a_requests_trailers_reach_the_handler() {
    let handler = |body: Body| async move {
        let collected = body.collect().await.expect("a body");
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let sum = trailers
            .get("x-sum")
            .map(|sum| sum.to_str().unwrap().to_owned());
        sum.unwrap_or_default()
    };
    let rig = Rig::new(Router::new().route("/", on_post(handler))).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "3".parse().unwrap());
    let frames = [Frame::data(Bytes::from("[1]")), Frame::trailers(trailers)];
    let frames = frames.map(Ok::<_, std::convert::Infallible>);
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    let mut client = rig.client(Protocol::Http2).await;
    let first = client.send(post("/", "k", Body::new(body))).await;
    assert_eq!(first.text(), "3");
    // Trailers are no part of the payload.
    assert!(client.send(post("/", "k", "[1]")).await.is_replay());
}
