//! What each profile settles, one by one.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::StatusCode;
use axum::routing::post as on_post;
use semel::http::{PROFILES, Profile, ProfileTerms, Route};
use semel_httpclient::{imf_fixdate, uuid_v7};

use crate::support::*;

/// The same on every attempt.
static FIRST_SENT: LazyLock<String> = LazyLock::new(|| imf_fixdate(now()));

/// A POST with a key that every profile takes.
fn keyed(terms: &ProfileTerms, path: &str, n: u16, body: &'static str) -> Request<Body> {
    const AT: u64 = 1_790_000_000_000;
    let key = uuid_v7(AT, n);
    if !terms.first_sent {
        return post(path, &key, body);
    }
    let request = with(
        without_key(post(path, "", body)),
        "repeatability-request-id",
        &key,
    );
    with(request, "repeatability-first-sent", &FIRST_SENT)
}

fn created_then_failing(runs: &Runs) -> Router {
    let (created, failing) = (runs.clone(), runs.clone());
    Router::new()
        .route(
            "/created",
            on_post(move || async move { (StatusCode::CREATED, created.begin().to_string()) }),
        )
        .route(
            "/failing",
            on_post(move || async move { (StatusCode::BAD_GATEWAY, failing.begin().to_string()) }),
        )
}

#[tokio::test]
async fn mismatch_replayed_status_and_5xx_are_as_the_table_says() {
    for terms in &PROFILES {
        let runs = Runs::default();
        let route = Route::new().profile(terms.profile);
        let rig = Rig::with(route, created_then_failing(&runs)).await;
        assert_eq!(
            rig.send(keyed(terms, "/created", 1, "{}")).await.status,
            201
        );
        let replay = rig.send(keyed(terms, "/created", 1, "{}")).await;
        let expected = if terms.replays_as_ok { 200 } else { 201 };
        assert_eq!(
            (replay.status.as_u16(), replay.is_replay()),
            (expected, true),
            "{}",
            terms.name
        );

        let mismatch = rig.send(keyed(terms, "/created", 1, "[]")).await;
        assert_eq!(
            mismatch.problem(),
            (terms.mismatch, "idempotency_conflict".to_owned())
        );

        let before = runs.begun();
        for _ in 0..2 {
            assert_eq!(
                rig.send(keyed(terms, "/failing", 2, "{}")).await.status,
                502
            );
        }
        let expected = if terms.keeps_5xx { 1 } else { 2 };
        assert_eq!(runs.begun() - before, expected, "{}", terms.name);

        let unkeyed = rig.send(without_key(post("/created", "", "{}"))).await;
        let expected = if terms.requires_key { 400 } else { 201 };
        assert_eq!(unkeyed.status, expected, "{}", terms.name);
    }
}

#[tokio::test]
async fn errors_have_the_shape_of_the_profile() {
    for terms in &PROFILES {
        let route = Route::new().profile(terms.profile);
        let rig = Rig::with(route, created_then_failing(&Runs::default())).await;
        let first = rig.send(keyed(terms, "/created", 1, "{}")).await;
        assert_eq!(first.header("idempotency-key").is_some(), terms.echoes_key);
        let document = rig.send(keyed(terms, "/created", 1, "[]")).await.json();
        let (nested, message) = (document.get("error"), document.get("message"));
        let ok = (terms.name == "intake").then_some(&serde_json::Value::Bool(false));
        assert_eq!(document.get("ok"), ok);
        match terms.name {
            "stripe" | "intake" => {
                let error = nested.unwrap();
                let kind = match terms.name {
                    "stripe" => "idempotency_error",
                    _ => "conflict",
                };
                assert_eq!(
                    (&error["type"], &error["retryable"]),
                    (&kind.into(), &false.into())
                );
                assert_eq!(error["message"], document["detail"]);
            }
            "iceberg" => {
                let error = nested.unwrap();
                assert_eq!(error["message"], document["detail"]);
                assert_eq!(error["type"], "idempotency_conflict");
                assert_eq!(error["code"], 422);
            }
            "acp" => {
                assert_eq!(message, document.get("detail"));
                assert_eq!(document["type"], "invalid_request");
            }
            _ => assert_eq!((nested, message), (None, None)),
        }
    }
}

#[tokio::test]
async fn running_duplicate_is_reported_as_stripe_and_acp_do() {
    for (profile, at, expected) in [
        (Profile::Stripe, "/error/code", "idempotency_key_in_use"),
        (Profile::Stripe, "/error/type", "idempotency_error"),
        (Profile::Acp, "/code", "idempotency_in_flight"),
        (Profile::Acp, "/type", "invalid_request"),
    ] {
        let runs = Runs::default();
        let counted = runs.clone();
        let handler = move || async move {
            counted.begin();
            pause(1_000).await;
        };
        let app = Router::new().route("/", on_post(handler));
        let rig = Rig::with(Route::new().profile(profile), app).await;
        let first = rig.send(post("/", "k", "{}"));
        let second = async {
            until("it runs", || runs.begun() == 1).await;
            rig.send(post("/", "k", "{}")).await
        };
        let (_, told) = tokio::join!(first, second);
        assert_eq!(told.status, 409);
        assert!(told.header("retry-after").is_some());
        assert_eq!(told.json().pointer(at), Some(&expected.into()));
    }
}
