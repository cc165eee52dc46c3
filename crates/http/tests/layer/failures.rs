//! Handlers that fail, panic, or don't know; stores that are down; what callers are told.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post as on_post;
use semel::http::{EffectOutcome, HandlerLease, Route};
use semel::{CrashPolicy, Policy};

use crate::support::*;

fn panicking(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move || async move {
        assert!(runs.begin() > 1, "on purpose");
        "fine"
    };
    Router::new().route("/", on_post(handler))
}

#[tokio::test]
async fn panic_is_reported_and_frees_the_key_under_takeover() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::new(panicking(&runs)).await;
        let mut client = rig.client(protocol).await;
        let told = client.send(post("/", "k", "{}")).await;
        assert_eq!(
            told.problem(),
            (500, "idempotency_effect_panicked".to_owned())
        );
        assert_eq!(told.json()["retryable"], true);
        assert_eq!(client.send(post("/", "k", "{}")).await.text(), "fine");
        assert_eq!(runs.begun(), 2);
    }
}

#[tokio::test]
async fn panic_or_error_under_hold_is_in_doubt() {
    let failing = |runs: &Runs| {
        let runs = runs.clone();
        let handler = move || async move {
            runs.begin();
            StatusCode::BAD_GATEWAY
        };
        Router::new().route("/", on_post(handler))
    };
    for (router, status) in [(panicking as fn(&Runs) -> Router, 500), (failing, 502)] {
        let runs = Runs::default();
        let rig = Rig::with(Route::new().hold(), router(&runs)).await;
        assert_eq!(rig.send(post("/", "k", "{}")).await.status, status);
        for _ in 0..2 {
            let told = rig.send(post("/", "k", "{}")).await;
            assert_eq!(told.problem(), (409, "idempotency_in_doubt".to_owned()));
            assert_eq!(told.json()["retryable"], false);
        }
        assert_eq!(runs.begun(), 1);
    }
}

#[tokio::test]
async fn handler_mark_overrides_the_status() {
    let app = |runs: &Runs, outcome: EffectOutcome| {
        let runs = runs.clone();
        let handler = move |lease: HandlerLease| async move {
            runs.begin();
            lease.mark(outcome);
            (StatusCode::BAD_GATEWAY, "provider unreachable")
        };
        Router::new().route("/", on_post(handler))
    };
    // Nothing happened: free, also under hold.
    let runs = Runs::default();
    let rig = Rig::with(Route::new().hold(), app(&runs, EffectOutcome::NoEffect)).await;
    for _ in 0..2 {
        let answer = rig.send(post("/", "k", "{}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (502, "provider unreachable")
        );
    }
    assert_eq!(runs.begun(), 2);
    // Nobody knows: in doubt, also under takeover.
    let runs = Runs::default();
    let rig = Rig::new(app(&runs, EffectOutcome::Unknown)).await;
    assert_eq!(rig.send(post("/", "k", "{}")).await.status, 502);
    assert_eq!(
        rig.send(post("/", "k", "{}")).await.problem().1,
        "idempotency_in_doubt"
    );
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn store_down_means_503_unless_fail_open() {
    use semel_core::{MemoryConfig, MemoryStore};
    use semel_testkit::faulty::{CallKind, Fault, FaultyStore};
    use std::sync::Arc;

    for (store_down, status, times) in [
        (semel::StoreDown::Closed, 503, 0),
        (semel::StoreDown::Open, 200, 2),
    ] {
        let clock = semel::tokio_env().clock;
        let memory = MemoryStore::new(MemoryConfig::default(), Arc::clone(&clock));
        let store = FaultyStore::sound(Arc::new(memory), clock);
        for _ in 0..20 {
            store.next(CallKind::Claim, Fault::Refuse);
        }
        let policy = Policy::default().with_store_down(store_down);
        let semel = semel::Semel::builder()
            .policy(policy)
            .open_on(Arc::new(store))
            .await;
        let runs = Runs::default();
        let counted = runs.clone();
        let handler = move || async move { counted.begin().to_string() };
        let router = Router::new().route("/", on_post(handler));
        let address = serve(router.layer(semel.unwrap().http())).await;
        for _ in 0..2 {
            let mut client = Client::connect(address, Protocol::Http1).await;
            let answer = client.send(post("/", "k", "{}")).await;
            assert_eq!(answer.status, status);
            if status == 503 {
                assert_eq!(answer.problem().1, "idempotency_store_unavailable");
                assert_eq!(answer.json()["retryable"], true);
                assert!(answer.header("retry-after").is_some());
            }
        }
        assert_eq!(runs.begun(), times);
    }
}

/// A form that comes while the store is down gets the document that its clients know.
#[tokio::test]
async fn intake_problem_says_that_the_service_is_unavailable() {
    use semel::http::{Profile, Route};
    use semel_core::{MemoryConfig, MemoryStore};
    use semel_testkit::faulty::{CallKind, Fault, FaultyStore};
    use std::sync::Arc;

    let clock = semel::tokio_env().clock;
    let memory = MemoryStore::new(MemoryConfig::default(), Arc::clone(&clock));
    let store = FaultyStore::sound(Arc::new(memory), clock);
    for _ in 0..20 {
        store.next(CallKind::Claim, Fault::Refuse);
    }
    let semel = semel::Semel::builder().open_on(Arc::new(store)).await;
    let route = Route::new().profile(Profile::Intake);
    let layer = semel.unwrap().http_builder().route("/", route).build();
    let router = Router::new().route("/", on_post(async || "done"));
    let address = serve(router.layer(layer.unwrap())).await;
    let mut client = Client::connect(address, Protocol::Http1).await;
    let answer = client.send(post("/", "k", "{}")).await;
    let document = answer.json();
    assert_eq!(
        (answer.status.as_u16(), &document["ok"]),
        (503, &false.into())
    );
    assert_eq!(document["error"]["type"], "service_unavailable");
    assert_eq!(document["error"]["retryable"], true);
    // With jitter: up to a quarter more.
    let millis = document["error"]["retryAfterMs"].as_u64().unwrap();
    assert!((5_000..=6_250).contains(&millis), "{millis}");
}

#[tokio::test]
async fn problem_has_rfc_9457_members_and_nothing_of_the_request() {
    let rig = Rig::new(panicking(&Runs::default())).await;
    let told = rig
        .send(post("/", "sk_live_4242", r#"{"card":"4242424242424242"}"#))
        .await;
    let document = told.json();
    let members = document.as_object().unwrap();
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    // Members have no order, and another crate of the build may have chosen that maps keep theirs.
    names.sort_unstable();
    let expected = [
        "code",
        "detail",
        "retryAfterMs",
        "retryable",
        "status",
        "title",
        "type",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        document["type"],
        "urn:semel:problem:idempotency_effect_panicked"
    );
    let millis = document["retryAfterMs"].as_u64().unwrap();
    assert!((1000..=1250).contains(&millis), "{millis}");
    assert_eq!(told.header("retry-after"), Some("1"));
    assert_eq!(told.header("cache-control"), Some("no-store"));
    assert!(!told.text().contains("4242"));
}

#[tokio::test]
async fn record_of_another_door_is_reported_and_does_not_run() {
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move || async move { counted.begin().to_string() };
    let router = Router::new().route("/", on_post(handler));
    let payload = semel::http::Payload::nothing();
    let route = Route::new()
        .scope("charge")
        .payload(payload)
        .ignore_credentials();
    let rig = Rig::with(route, router).await;
    // The layer's fingerprint is over six empty parts, and so is this one.
    let mut builder = semel_core::Fingerprint::builder(rig.semel.engine().secret());
    for _ in 0..6 {
        builder = builder.part(b"");
    }
    let namespace = semel_core::Namespace::new("", "", "charge").unwrap();
    let key = semel_core::Key::parse("k").unwrap();
    let policy = std::sync::Arc::new(Policy::default().with_crash(CrashPolicy::Hold));
    let engine = rig.semel.engine();
    let request =
        semel_core::engine::Request::new(engine, namespace, &key, builder.finish(), policy);
    let answer = semel_core::Answer::from_body("not by HTTP");
    let effect = |_| async {
        semel_core::engine::Report::new((), semel_core::engine::Verdict::Complete(answer))
    };
    engine.execute(request, effect).await;
    let told = rig.send(post("/", "k", "{}")).await;
    assert_eq!(
        told.problem(),
        (500, "idempotency_answer_unreadable".to_owned())
    );
    assert_eq!(runs.begun(), 0);
}
