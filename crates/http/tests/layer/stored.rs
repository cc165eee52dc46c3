//! What of a response is stored: without its body, without some fields, without some headers.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::post as on_post;
use semel::http::{BuildError, Route};
use semel_core::store::Query;

use crate::support::*;

const CARD: &str =
    r#"{"id":7,"card":{"number":"4242","type":"x"},"items":[{"pin":"1111"},{"pin":"2222"}]}"#;

fn app(runs: &Runs, media: &'static str, body: &'static str) -> Router {
    let runs = runs.clone();
    let handler = move || async move {
        runs.begin();
        let headers = [
            (header::CONTENT_TYPE, media),
            (header::LOCATION, "/charges/secret"),
            (header::ETAG, "\"of-4242\""),
        ];
        (StatusCode::CREATED, headers, body).into_response()
    };
    Router::new().route("/", on_post(handler))
}

/// The first answer and its replay.
async fn both(route: Route, media: &'static str, body: &'static str) -> (Rig, Answer, Answer) {
    let runs = Runs::default();
    let rig = Rig::with(route, app(&runs, media, body)).await;
    let first = rig.send(post("/", "k", "{}")).await;
    let replay = rig.send(post("/", "k", "{}")).await;
    assert!(!first.is_replay() && replay.is_replay());
    assert_eq!((first.status.as_u16(), first.text()), (201, body));
    assert_eq!(first.header("etag"), Some("\"of-4242\""));
    assert_eq!(runs.begun(), 1);
    (rig, first, replay)
}

/// Whether any record has this text.
async fn is_stored(rig: &Rig, text: &str) -> bool {
    let page = rig
        .semel
        .store()
        .list(&Query::default())
        .await
        .expect("a page");
    let mut packed = page.records.iter().map(|(_, record)| record.encode());
    packed.any(|bytes| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[tokio::test]
async fn a_body_is_not_stored_if_the_route_says_so() {
    let route = Route::new().keep_body(false);
    let (rig, _, replay) = both(route, "application/json", CARD).await;
    assert_eq!(
        replay.problem(),
        (201, "idempotency_body_not_kept".to_owned())
    );
    assert_eq!(replay.header("idempotent-not-kept"), Some("body"));
    assert_eq!(replay.header("location"), Some("/charges/secret"));
    assert!(!is_stored(&rig, "number").await);
}

#[tokio::test]
async fn selected_fields_are_null_in_replays_and_in_the_store() {
    let route = || {
        let route = Route::new().redact("/card/number");
        route.redact("/items/*/pin").drop_header("Location")
    };
    for media in ["application/json", "application/problem+json"] {
        let (rig, _, replay) = both(route(), media, CARD).await;
        assert_eq!(replay.status, 201);
        assert_eq!(
            replay.text(),
            r#"{"card":{"number":null,"type":"x"},"id":7,"items":[{"pin":null},{"pin":null}]}"#
        );
        assert_eq!(replay.header("idempotent-not-kept"), Some("fields"));
        assert_eq!(replay.header("content-type"), Some(media));
        assert_eq!(replay.header("location"), None);
        assert_eq!(replay.header("etag"), None, "it is of other bytes");
        for secret in ["4242", "1111", "2222", "/charges/secret"] {
            assert!(!is_stored(&rig, secret).await, "{secret}");
        }
        assert!(is_stored(&rig, "\"type\"").await);
    }
}

#[tokio::test]
async fn what_cannot_be_redacted_is_not_stored() {
    for (media, body) in [
        ("text/plain", "number=4242"),
        (
            "application/json",
            r#"{"card":{"number":"4242"},"card":{}}"#,
        ),
        ("application/json", r#"{"card":{"number":"4242"}"#),
    ] {
        let route = Route::new().redact("/card/number");
        let (rig, _, replay) = both(route, media, body).await;
        assert_eq!(replay.header("idempotent-not-kept"), Some("body"));
        assert_eq!(replay.problem().1, "idempotency_body_not_kept");
        assert!(!is_stored(&rig, "4242").await);
    }
    let (_, _, replay) = both(Route::new().redact("/a"), "text/plain", "").await;
    assert_eq!((replay.status.as_u16(), replay.text()), (201, ""));
}

#[tokio::test]
async fn a_pointer_that_selects_nothing_is_refused() {
    let semel = semel::Semel::open("memory://").await.unwrap();
    let route = Route::new().redact("card");
    let layer = semel.http_builder().defaults(route).build();
    assert!(matches!(layer, Err(BuildError::Pointer { .. })));
}
