//! Answers that are streams, or too large, or break off: done is done, half a body never.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post as on_post;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use semel::Policy;
use semel::http::{BodyLimits, Route};

use crate::support::*;

fn pieces(count: usize, millis: u64, piece: &'static str) -> Body {
    Body::from_stream(stream::unfold(0, move |n| async move {
        pause(millis).await;
        (n < count).then(|| (Ok::<_, std::io::Error>(Bytes::from(piece)), n + 1))
    }))
}

fn app<R: IntoResponse + 'static>(runs: &Runs, make: fn() -> R) -> Router {
    let runs = runs.clone();
    let handler = move || async move {
        runs.begin();
        make()
    };
    Router::new().route("/", on_post(handler))
}

#[tokio::test]
async fn events_are_streamed_and_the_replay_says_they_are_missing() {
    for protocol in BOTH {
        let runs = Runs::default();
        let router = app(&runs, || {
            let location = (header::LOCATION, "/jobs/1");
            let events = (header::CONTENT_TYPE, "text/event-stream");
            (
                StatusCode::ACCEPTED,
                [events, location],
                pieces(5, 100, "data: x\n\n"),
            )
        });
        let rig = Rig::new(router).await;
        let response = rig.client(protocol).await.begin(post("/", "k", "{}")).await;
        let frames = response.into_body().into_data_stream();
        let frames: Vec<Bytes> = frames.map(|frame| frame.unwrap()).collect().await;
        assert!(frames.len() >= 4, "not held back: {frames:?}");
        assert_eq!(frames.concat(), b"data: x\n\n".repeat(5));

        let replay = rig.client(protocol).await.send(post("/", "k", "{}")).await;
        assert!(replay.is_replay());
        assert_eq!(replay.header("idempotent-not-kept"), Some("body"));
        assert_eq!(replay.header("location"), Some("/jobs/1"));
        assert_eq!(
            replay.problem(),
            (202, "idempotency_body_not_kept".to_owned())
        );
        assert_eq!(runs.begun(), 1);
    }
}

#[tokio::test]
async fn oversized_response_arrives_whole_and_does_not_run_again() {
    let route = || Route::new().policy(Policy::default().with_max_answer_bytes(1000));
    for (exact, make) in [
        (
            Some(5000),
            (|| Body::from("hello".repeat(1000))) as fn() -> Body,
        ),
        (None, || pieces(1000, 0, "hello")),
    ] {
        for protocol in BOTH {
            let runs = Runs::default();
            let rig = Rig::with(route(), app(&runs, make)).await;
            let mut client = rig.client(protocol).await;
            let first = client.send(post("/", "k", "{}")).await;
            assert_eq!(first.body, "hello".repeat(1000));
            let replay = client.send(post("/", "k", "{}")).await;
            assert_eq!(
                replay.problem(),
                (200, "idempotency_body_not_kept".to_owned())
            );
            assert_eq!(replay.json()["originalBytes"].as_u64(), exact);
            assert_eq!(runs.begun(), 1);
        }
    }
}

/// The default bound is 1 MiB: the last byte that fits is replayed, and one more is not kept.
#[tokio::test]
async fn answers_up_to_a_mebibyte_are_kept_by_default() {
    const MEBIBYTE: usize = 1024 * 1024;
    let exactly = || Body::from(vec![b'x'; MEBIBYTE]);
    let more = || Body::from(vec![b'x'; MEBIBYTE + 1]);
    for (make, is_kept) in [(exactly as fn() -> Body, true), (more, false)] {
        let runs = Runs::default();
        let rig = Rig::new(app(&runs, make)).await;
        let first = rig.send(post("/", "k", "{}")).await;
        let replay = rig.send(post("/", "k", "{}")).await;
        assert_eq!(replay.body == first.body, is_kept);
        if !is_kept {
            assert_eq!(replay.problem().1, "idempotency_body_not_kept");
        }
        assert_eq!(runs.begun(), 1);
    }
}

#[tokio::test]
async fn an_answer_of_unknown_length_that_fits_is_kept() {
    let runs = Runs::default();
    let rig = Rig::new(app(&runs, || pieces(20, 1, "hello"))).await;
    let first = rig.send(post("/", "k", "{}")).await;
    let replay = rig.send(post("/", "k", "{}")).await;
    assert!(replay.is_replay());
    assert_eq!(
        (first.body, replay.body),
        ("hello".repeat(20).into(), "hello".repeat(20).into())
    );
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn slow_response_counts_as_a_stream() {
    let limits = BodyLimits::default().with_gather_time(Duration::from_millis(100));
    for route in [Route::new().limits(limits), Route::new().streams()] {
        let runs = Runs::default();
        let rig = Rig::with(route, app(&runs, || pieces(6, 50, "hello"))).await;
        let first = rig.send(post("/", "k", "{}")).await;
        assert_eq!(first.body, "hello".repeat(6), "nothing of it is lost");
        let replay = rig.send(post("/", "k", "{}")).await;
        assert_eq!(replay.header("idempotent-not-kept"), Some("body"));
        assert_eq!(runs.begun(), 1);
    }
}

#[tokio::test]
async fn truncated_response_is_never_replayed() {
    fn broken() -> Body {
        let pieces = [Ok(Bytes::from("half")), Err(std::io::Error::other("gone"))];
        Body::from_stream(stream::iter(pieces))
    }
    let runs = Runs::default();
    let rig = Rig::new(app(&runs, broken)).await;
    for n in 1..=2 {
        let answer = rig.send(post("/", "k", "{}")).await;
        assert_eq!(
            answer.problem(),
            (502, "idempotency_answer_broken".to_owned())
        );
        assert_eq!(runs.begun(), n, "the key is free, as after any failure");
    }
    let runs = Runs::default();
    let rig = Rig::with(Route::new().hold(), app(&runs, broken)).await;
    rig.send(post("/", "k", "{}")).await;
    let answer = rig.send(post("/", "k", "{}")).await;
    assert_eq!(answer.problem(), (409, "idempotency_in_doubt".to_owned()));
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn an_answers_trailers_reach_the_first_caller() {
    fn with_trailers() -> Body {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "3".parse().unwrap());
        let frames = [Frame::data(Bytes::from("abc")), Frame::trailers(trailers)];
        let frames = frames.map(Ok::<_, std::convert::Infallible>);
        Body::new(http_body_util::StreamBody::new(stream::iter(frames)))
    }
    let rig = Rig::new(app(&Runs::default(), with_trailers)).await;
    let mut client = rig.client(Protocol::Http2).await;
    let first = client.send(post("/", "k", "{}")).await;
    assert_eq!(first.trailers.unwrap()["x-sum"], "3");
    let replay = client.send(post("/", "k", "{}")).await;
    assert_eq!((replay.text(), &replay.trailers), ("abc", &None));
}
