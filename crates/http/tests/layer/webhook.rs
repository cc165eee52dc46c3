//! Webhooks: verify → claim by the event's id → 200 on every delivery after the first.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post as on_post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use semel::Mode;
use semel::http::{BodyLimits, StandardWebhooks, webhook};

use crate::support::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn hook(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move || async move { (StatusCode::ACCEPTED, runs.begin().to_string()) };
    Router::new().route("/", on_post(handler))
}

/// A delivery signed `age` seconds ago.
fn delivery(id: &str, body: &str, age: u64) -> Request<Body> {
    let now = semel::tokio_env().clock.wall().as_micros() / 1_000_000;
    let at = (now - age).to_string();
    let secret = BASE64_STANDARD.decode(&SECRET[6..]).expect("base64");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&secret).expect("a key");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    let request = Request::post("/")
        .header("host", "test")
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", at)
        .header("webhook-signature", format!("v1,AAAA v1,{signature}"));
    request
        .body(Body::from(body.to_owned()))
        .expect("a request")
}

#[tokio::test]
async fn second_delivery_gets_200_and_runs_nothing() {
    let runs = Runs::default();
    let route = StandardWebhooks::new(&[SECRET]).unwrap().route();
    let rig = Rig::with(route, hook(&runs)).await;
    assert_eq!(rig.send(delivery("msg_1", "{}", 60)).await.status, 202);
    // Another timestamp, another signature, even another body: the event is what its id says.
    for body in ["{}", r#"{"attempt":2}"#] {
        let again = rig.send(delivery("msg_1", body, 0)).await;
        assert_eq!((again.status, again.is_replay()), (StatusCode::OK, true));
    }
    assert_eq!(rig.send(delivery("msg_2", "{}", 0)).await.status, 202);
    assert_eq!(runs.begun(), 2);
}

#[tokio::test]
async fn unverified_delivery_is_refused_and_claims_nothing() {
    let runs = Runs::default();
    let route = StandardWebhooks::new(&[SECRET]).unwrap().route();
    let rig = Rig::with(route, hook(&runs)).await;
    let mut forged = delivery("msg_1", "{}", 0);
    *forged.body_mut() = Body::from("[]");
    let mut unsigned = delivery("msg_1", "{}", 0);
    unsigned.headers_mut().remove("webhook-signature");
    let old = delivery("msg_1", "{}", 3600);
    let twice = with(delivery("msg_1", "{}", 0), "webhook-id", "msg_2");
    for request in [forged, unsigned, old, twice] {
        let answer = rig.send(request).await;
        assert_eq!(answer.problem(), (401, "webhook_unverified".to_owned()));
    }
    assert_eq!(rig.semel.store().stats().await.unwrap().records, 0);
    assert_eq!(
        rig.send(delivery("msg_1", "{}", 0)).await.status,
        202,
        "the id is as new"
    );
}

#[tokio::test]
async fn unverified_delivery_is_refused_in_every_mode() {
    for mode in [Mode::Observe, Mode::Off] {
        let runs = Runs::default();
        let limits = BodyLimits::default().with_request_bytes(100);
        let route = StandardWebhooks::new(&[SECRET]).unwrap().route();
        let rig = Rig::with(route.mode(mode).limits(limits), hook(&runs)).await;
        let mut forged = delivery("msg_1", "{}", 0);
        *forged.body_mut() = Body::from("[]");
        assert_eq!(rig.send(forged).await.problem().0, 401, "{mode:?}");
        // Nor what is too long to be looked at.
        let long = delivery("msg_1", &"x".repeat(200), 0);
        assert_eq!(rig.send(long).await.problem().0, 413, "{mode:?}");
        assert_eq!(runs.begun(), 0);
        for _ in 0..2 {
            assert_eq!(rig.send(delivery("msg_1", "{}", 0)).await.status, 202);
        }
        assert_eq!(runs.begun(), 2, "{mode:?}");
    }
}

#[tokio::test]
async fn failed_delivery_may_be_repeated() {
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move || async move {
        if counted.begin() == 1 {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::OK
        }
    };
    let route = webhook(
        |_, _, _| true,
        |_, body| {
            serde_json::from_slice::<serde_json::Value>(body).ok()?["id"]
                .as_str()
                .map(str::to_owned)
        },
    );
    let rig = Rig::with(route, Router::new().route("/", on_post(handler))).await;
    let event = || without_key(post("/", "", r#"{"id":"evt_1"}"#));
    assert_eq!(rig.send(event()).await.status, 503);
    assert_eq!(rig.send(event()).await.status, 200);
    assert!(rig.send(event()).await.is_replay());
    let nameless = rig.send(without_key(post("/", "", "{}"))).await;
    assert_eq!(nameless.problem().1, "idempotency_key_required");
    assert_eq!(runs.begun(), 2);
}

#[test]
fn invalid_secret_is_refused_and_not_echoed() {
    for secrets in [&[][..], &["whsec_"], &["not base64!"], &["c2hvcnQ="]] {
        assert!(StandardWebhooks::new(secrets).is_err(), "{secrets:?}");
    }
    let shown = format!("{:?}", StandardWebhooks::new(&[SECRET]).unwrap());
    assert_eq!(shown, "StandardWebhooks(1 secrets)");
}
