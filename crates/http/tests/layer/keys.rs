//! Where keys are read from, what they may look like, and what they stand for.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::routing::any;
use semel::http::{BodyComparison, KeySource, Payload, Route};
use semel_core::Code;
use semel_core::event::Step;

use crate::support::*;

/// Every method and path answers which run this is.
fn count(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move || async move { runs.begin().to_string() };
    Router::new()
        .route("/", any(handler.clone()))
        .route("/other", any(handler))
}

#[tokio::test]
async fn two_key_lines_are_refused() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::new(count(&runs)).await;
        let twice = with(post("/", "a", "{}"), "idempotency-key", "b");
        let same_twice = with(post("/", "a", "{}"), "idempotency-key", "a");
        let alias = with(post("/", "a", "{}"), "x-idempotency-key", "a");
        for request in [twice, same_twice, alias] {
            let answer = rig.client(protocol).await.send(request).await;
            assert_eq!(
                answer.problem(),
                (400, "idempotency_key_invalid".to_owned())
            );
        }
        assert_eq!(runs.begun(), 0);
    }
}

#[tokio::test]
async fn quoted_bare_and_aliased_are_one_key() {
    let runs = Runs::default();
    let rig = Rig::new(count(&runs)).await;
    rig.send(post("/", "k-1", "{}")).await;
    assert!(rig.send(post("/", "\"k-1\"", "{}")).await.is_replay());
    let aliased = with(without_key(post("/", "", "{}")), "x-idempotency-key", "k-1");
    assert!(rig.send(aliased).await.is_replay());
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn invalid_key_is_refused_with_a_reason_and_not_echoed() {
    let runs = Runs::default();
    let rig = Rig::new(count(&runs)).await;
    let long = "sk_live_".repeat(33);
    for key in [
        "",
        "white space",
        "\"",
        "\"sk_live_",
        "a,b",
        "k;v=1",
        &long,
        "sk_live_é",
    ] {
        let answer = rig.send(post("/", key, "{}")).await;
        assert_eq!(
            answer.problem(),
            (400, "idempotency_key_invalid".to_owned()),
            "{key}"
        );
        assert!(!answer.text().contains("sk_live_"));
        assert_eq!(answer.json()["retryable"], false);
    }
    assert_eq!(runs.begun(), 0);
    let refused = |step: &Step| {
        matches!(
            step,
            Step::Refused {
                code: Code::KeyInvalid
            }
        )
    };
    assert_eq!(rig.log.count(refused), 8);
}

#[tokio::test]
async fn without_a_key_every_request_runs_and_has_a_request_id() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::new(count(&runs)).await;
        let mut client = rig.client(protocol).await;
        let mut ids = std::collections::HashSet::new();
        for n in 1..=2 {
            let answer = client.send(without_key(post("/", "", "{}"))).await;
            assert_eq!(answer.text(), n.to_string());
            assert!(ids.insert(answer.header("x-request-id").unwrap().to_owned()));
        }
        let named = with(without_key(post("/", "", "{}")), "x-request-id", "mine-7");
        assert_eq!(
            client.send(named).await.header("x-request-id"),
            Some("mine-7")
        );
        assert_eq!(rig.log.count(|step| *step == Step::Passed), 3);
    }
}

#[tokio::test]
async fn missing_required_key_links_to_the_documentation() {
    let runs = Runs::default();
    let semel = semel::Semel::open("memory://").await.unwrap();
    let layer = semel
        .http_builder()
        .documentation("https://example.com/keys")
        .defaults(Route::new().require_key())
        .build()
        .unwrap();
    let address = serve(count(&runs).layer(layer)).await;
    let mut client = Client::connect(address, Protocol::Http1).await;
    let answer = client.send(without_key(post("/", "", "{}"))).await;
    assert_eq!(
        answer.problem(),
        (400, "idempotency_key_required".to_owned())
    );
    let link = Some("<https://example.com/keys>; rel=\"describedby\"");
    assert_eq!(answer.header("link"), link);
    let kind = answer.json()["type"].clone();
    assert_eq!(kind, "https://example.com/keys#idempotency_key_required");
    assert_eq!(runs.begun(), 0);
    // Nor is a key with another payload let in, however often it is tried.
    client.send(post("/", "k", "{}")).await;
    for _ in 0..2 {
        let answer = client.send(post("/", "k", "[]")).await;
        assert_eq!(answer.problem(), (422, "idempotency_conflict".to_owned()));
        assert_eq!(answer.header("link"), link);
        let kind = answer.json()["type"].clone();
        assert_eq!(kind, "https://example.com/keys#idempotency_conflict");
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn only_post_and_patch_are_covered_by_default() {
    let request = |method: Method| {
        let request = Request::builder()
            .method(method)
            .uri("/")
            .header("host", "test");
        request
            .header("idempotency-key", "k")
            .body(Body::empty())
            .unwrap()
    };
    for (method, times) in [
        (Method::GET, 2),
        (Method::PUT, 2),
        (Method::DELETE, 2),
        (Method::POST, 1),
        (Method::PATCH, 1),
    ] {
        let runs = Runs::default();
        let rig = Rig::new(count(&runs)).await;
        for _ in 0..2 {
            rig.send(request(method.clone())).await;
        }
        assert_eq!(runs.begun(), times, "{method}");
    }
    let runs = Runs::default();
    let rig = Rig::with(Route::new().methods([Method::PUT]), count(&runs)).await;
    for _ in 0..2 {
        rig.send(request(Method::PUT)).await;
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn another_payload_is_refused() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::new(count(&runs)).await;
        let mut client = rig.client(protocol).await;
        client.send(post("/", "k", r#"{"cents":{"eur":1}}"#)).await;
        let others = [
            post("/", "k", r#"{"cents":{"eur":2}}"#),
            post("/?x=1", "k", r#"{"cents":{"eur":1}}"#),
            post("/", "k", ""),
        ];
        for other in others {
            let answer = client.send(other).await;
            assert_eq!(answer.problem(), (422, "idempotency_conflict".to_owned()));
            assert_eq!(answer.json()["retryable"], false);
            assert_eq!(answer.header("retry-after"), None);
        }
        let same = client
            .send(post("/", "k", r#" { "cents" : { "eur" : 1.0 } } "#))
            .await;
        assert!(same.is_replay());
        assert_eq!(runs.begun(), 1);
        assert_eq!(
            rig.log
                .count(|step| matches!(step, Step::Mismatched { .. })),
            3
        );
    }
}

#[tokio::test]
async fn the_same_key_on_another_route_is_another_request() {
    let runs = Runs::default();
    let rig = Rig::new(count(&runs)).await;
    assert_eq!(rig.send(post("/", "k", "{}")).await.text(), "1");
    assert_eq!(rig.send(post("/other", "k", "{}")).await.text(), "2");
}

#[tokio::test]
async fn ambiguous_json_is_refused_unless_compared_by_bytes() {
    let runs = Runs::default();
    let rig = Rig::new(count(&runs)).await;
    let twice = r#"{"amount":1,"amount":1000}"#;
    let answer = rig.send(post("/", "k", twice)).await;
    assert_eq!(
        answer.problem(),
        (400, "idempotency_payload_invalid".to_owned())
    );
    assert_eq!(runs.begun(), 0);
    let by_bytes = Payload::default().with_body(BodyComparison::Bytes);
    let rig = Rig::with(Route::new().payload(by_bytes), count(&runs)).await;
    assert_eq!(rig.send(post("/", "k", twice)).await.text(), "1");
}

#[tokio::test]
async fn a_key_in_the_body_works_like_one_in_the_header() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().key(KeySource::body()), count(&runs)).await;
    let ask = |body: &'static str| rig.send(without_key(post("/", "", body)));
    assert_eq!(ask(r#"{"idempotency_key":"k","n":1}"#).await.text(), "1");
    assert!(ask(r#"{"n":1,"idempotency_key":"k"}"#).await.is_replay());
    assert_eq!(
        ask(r#"{"idempotency_key":"k","n":2}"#).await.problem().0,
        422
    );
    assert_eq!(ask(r#"{"idempotencyKey":"l","n":1}"#).await.text(), "2");
    assert_eq!(ask(r#"{"n":1}"#).await.text(), "3");
    let both = ask(r#"{"idempotency_key":"k","idempotencyKey":"k"}"#).await;
    assert_eq!(both.problem(), (400, "idempotency_key_invalid".to_owned()));
    assert_eq!(ask(r#"{"idempotency_key":7}"#).await.problem().0, 400);
    let mut plain = without_key(post("/", "", "not json"));
    let text = axum::http::HeaderValue::from_static("text/plain");
    plain.headers_mut().insert("content-type", text);
    assert_eq!(rig.send(plain).await.text(), "4");
    assert_eq!(ask("").await.text(), "5");
}

#[tokio::test]
async fn body_with_a_key_for_lenient_parsers_is_refused() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().key(KeySource::body()), count(&runs)).await;
    let deep = format!(
        "{{\"idempotency_key\":\"k\",\"n\":{}0{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let bodies = [
        "not json".to_owned(),
        r#"{"idempotency_key":"k","note":"\ud83d"}"#.to_owned(),
        "\u{feff}{\"idempotency_key\":\"k\"}".to_owned(),
        r#"{"idempotency_key":"k","n":1e400}"#.to_owned(),
        deep,
    ];
    for body in bodies {
        let told = rig.send(without_key(post("/", "", body))).await;
        assert_eq!(
            told.problem(),
            (400, "idempotency_payload_invalid".to_owned())
        );
    }
    assert_eq!(runs.begun(), 0);
}

#[tokio::test]
async fn a_key_can_come_from_a_function() {
    let runs = Runs::default();
    let source = KeySource::function(|parts, _| {
        Some(parts.headers.get("x-order")?.to_str().ok()?.to_owned())
    });
    let rig = Rig::with(Route::new().key(source), count(&runs)).await;
    for _ in 0..2 {
        rig.send(with(without_key(post("/", "", "{}")), "x-order", "7"))
            .await;
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn caller_retention_needs_permission_and_has_a_cap() {
    let kept_for = async |route: Route, wish: &str| {
        let rig = Rig::with(route, count(&Runs::default())).await;
        let answer = rig
            .send(with(post("/", "k", "{}"), "x-idempotency-ttl", wish))
            .await;
        if !answer.status.is_success() {
            return Err(answer.problem().1);
        }
        let all = semel_core::store::Query::default();
        let page = rig.semel.store().list(&all).await.unwrap();
        Ok(page.records[0].1.retention)
    };
    let day = Duration::from_secs(24 * 3600);
    let hour = Duration::from_secs(3600);
    let granted = || Route::new().caller_ttl(hour);
    assert_eq!(
        kept_for(Route::new(), "60000").await,
        Ok(day),
        "not granted"
    );
    assert_eq!(
        kept_for(granted(), "60000").await,
        Ok(Duration::from_secs(60))
    );
    assert_eq!(kept_for(granted(), "86400000").await, Ok(hour), "capped");
    assert_eq!(
        kept_for(granted(), "1").await,
        Ok(Duration::from_secs(30)),
        "the lease"
    );
    for wrong in ["0", "-1", "soon", "1.5", ""] {
        assert_eq!(
            kept_for(granted(), wrong).await,
            Err("idempotency_ttl_invalid".to_owned())
        );
    }
}

#[tokio::test]
async fn events_name_the_principal_and_the_operation() {
    let runs = Runs::default();
    let route = Route::new().operation("submit").principal(|parts| {
        parts
            .headers
            .get("x-user")?
            .to_str()
            .ok()
            .map(str::to_owned)
    });
    let rig = Rig::with(route, count(&runs)).await;
    for _ in 0..2 {
        rig.send(with(post("/", "k", "{}"), "x-user", "ada")).await;
    }
    assert_eq!(runs.begun(), 1);
    let named = rig.log.named();
    assert!(named.len() > 4, "{named:?}");
    let is_named = |(actor, operation): &(Option<String>, Option<String>)| {
        (actor.as_deref(), operation.as_deref()) == (Some("ada"), Some("submit"))
    };
    assert!(named.iter().all(is_named), "{named:?}");
    // A request without a key has an operation, and no actor: nothing was asked for in a caller's
    // name.
    let before = named.len();
    rig.send(without_key(post("/", "", "{}"))).await;
    let passed = rig.log.named().split_off(before);
    assert_eq!(passed, [(None, Some("submit".to_owned()))]);
}
