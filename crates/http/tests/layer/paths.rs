//! Paths and methods that services read in different ways.

use axum::Router;
use axum::http::{Method, Request};
use semel::Semel;
use semel::http::Route;

use crate::support::*;

/// A service that acts on every path, with one strict route.
async fn strict(runs: &Runs, path: &str) -> std::net::SocketAddr {
    let semel = Semel::open("memory://").await.expect("a store");
    let builder = semel.http_builder();
    let layer = builder.route(path, Route::new().require_key().hold());
    let runs = runs.clone();
    let handler = move || async move { runs.begin().to_string() };
    serve(
        Router::new()
            .fallback(handler)
            .layer(layer.build().expect("a layer")),
    )
    .await
}

async fn ask(address: std::net::SocketAddr, request: Request<axum::body::Body>) -> Answer {
    let mut client = Client::connect(address, Protocol::Http1).await;
    client.send(request).await
}

#[tokio::test]
async fn equivalent_paths_share_the_rules_of_a_route() {
    let runs = Runs::default();
    let address = strict(&runs, "/charges").await;
    for path in [
        "/charges",
        "/charges/",
        "/Charges",
        "/%63harges",
        "/CHARGE%53/",
    ] {
        let answer = ask(address, without_key(post(path, "", "{}"))).await;
        let required = (400, "idempotency_key_required".to_owned());
        assert_eq!(answer.problem(), required, "{path}");
    }
    assert_eq!(runs.begun(), 0);
    assert_eq!(ask(address, post("/charges", "k", "{}")).await.text(), "1");
    // The same key, so the other form is another payload and not another effect.
    assert_eq!(
        ask(address, post("/Charges/", "k", "{}")).await.problem().0,
        422
    );
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn ambiguous_path_is_refused() {
    let runs = Runs::default();
    let address = strict(&runs, "/charges").await;
    for path in [
        "//charges",
        "/./charges",
        "/x/../charges",
        "/x/%2e%2E/charges",
        "/charges;a=1",
        "/%2Fcharges",
        "/x%2f..%2fcharges",
        "/%5Ccharges",
        "/charges%00",
        "/charges%3fa",
        "/%252fcharges",
    ] {
        for request in [post(path, "k", "{}"), without_key(post(path, "", "{}"))] {
            let answer = ask(address, request).await;
            let ambiguous = (400, "idempotency_path_ambiguous".to_owned());
            assert_eq!(answer.problem(), ambiguous, "{path}");
        }
    }
    assert_eq!(runs.begun(), 0);
    // What no reading takes for the route is none of its business, nor is a method that it doesn't
    // cover.
    for (number, path) in ["//other", "/a;b", "/a%2fb"].into_iter().enumerate() {
        let answer = ask(address, without_key(post(path, "", "{}"))).await;
        assert_eq!(answer.text(), (number + 1).to_string(), "{path}");
    }
    let mut look = without_key(post("//charges", "", "{}"));
    *look.method_mut() = Method::GET;
    assert_eq!(ask(address, look).await.status, 200);
}

#[tokio::test]
async fn route_that_matches_every_reading_accepts_odd_paths() {
    let runs = Runs::default();
    let address = strict(&runs, "/files/{*rest}").await;
    assert_eq!(
        ask(address, post("/files/a%2Fb", "k", "{}")).await.text(),
        "1"
    );
    assert!(
        ask(address, post("/files/a%2Fb", "k", "{}"))
            .await
            .is_replay()
    );
    let leaves = ask(address, post("/files/..%2Fb", "k2", "{}")).await;
    assert_eq!(leaves.problem().1, "idempotency_path_ambiguous");
}

#[tokio::test]
async fn overridden_method_is_covered_and_counts() {
    let runs = Runs::default();
    let address = strict(&runs, "/charges").await;
    let put = |key: &str| {
        let mut request = with(
            post("/charges", key, "{}"),
            "x-http-method-override",
            "post",
        );
        *request.method_mut() = Method::PUT;
        request
    };
    let answer = ask(address, without_key(put("k"))).await;
    assert_eq!(answer.problem().1, "idempotency_key_required");
    assert_eq!(ask(address, post("/charges", "k", "{}")).await.text(), "1");
    let other = with(
        post("/charges", "k", "{}"),
        "x-http-method-override",
        "DELETE",
    );
    assert_eq!(ask(address, other).await.problem().0, 422);
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn ambiguous_key_in_the_body_is_refused() {
    let runs = Runs::default();
    let counted = runs.clone();
    let router = Router::new().fallback(move || async move { counted.begin().to_string() });
    let route = Route::new()
        .key(semel::http::KeySource::field("key"))
        .payload(semel::http::Payload::default().with_body(semel::http::BodyComparison::Bytes));
    let rig = Rig::with(route, router).await;
    for body in [
        r#"{"key":"a","key":"b"}"#,
        "\u{feff}{\"key\":\"a\"}",
        r#"{"key":"a",}"#,
    ] {
        for media in ["application/json", "text/plain"] {
            let mut request = without_key(post("/", "", body.to_owned()));
            let media = media.parse().unwrap();
            request.headers_mut().insert("content-type", media);
            let answer = rig.send(request).await;
            assert_eq!(answer.problem().0, 400, "{body}");
        }
    }
    assert_eq!(runs.begun(), 0);
}
