//! The files of the dashboard, and its statistics.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use semel_server::config::Config;
use semel_server::{OpenOptions, Services};
use semel_testkit::private::new_folder;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::ADMIN;

async fn opened(change: impl FnOnce(&mut Config)) -> (Services, Router, Router) {
    let mut config = Config::default();
    config.store.url = Some("memory://".to_owned());
    config.admin.address = Some("127.0.0.1:0".to_owned());
    config.admin.open = true;
    config.api.access = semel_server::config::ApiAccess::Loopback;
    change(&mut config);
    let opened = OpenOptions::for_node(&config)
        .open()
        .await
        .expect("a store");
    let mounts = opened.mounts(&config).expect("routers");
    (opened, mounts.main, mounts.admin)
}

fn with_token(config: &mut Config) {
    let file = new_folder("token").join("token");
    std::fs::write(&file, ADMIN).expect("a file");
    config.admin.token_file = Some(file.display().to_string());
}

async fn ask(router: &Router, request: http::request::Builder, body: &Value) -> Response<Body> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = request
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .body(Body::from(body));
    let answer = router.clone().oneshot(request.expect("a request")).await;
    answer.expect("an answer")
}

async fn get(router: &Router, path: &str) -> Response<Body> {
    ask(router, Request::get(path), &Value::Null).await
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body");
    String::from_utf8_lossy(&bytes.to_bytes()).into_owned()
}

#[tokio::test]
async fn page_loads_without_credential_but_shows_no_data() {
    let (_opened, _, admin) = opened(with_token).await;
    let page = get(&admin, "/").await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"]
        .to_str()
        .expect("text")
        .to_owned();
    for needed in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(needed), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(page.headers()["referrer-policy"], "no-referrer");
    let page = text(page).await;
    assert!(page.contains("<title>Semel</title>") && !page.contains(ADMIN));
    // Every referenced file exists and has the right media type.
    for (path, kind) in [
        ("/ui/main.js", "text/javascript"),
        ("/ui/views/overview.js", "text/javascript"),
        ("/ui/style.css", "text/css"),
        ("/ui/icon.svg", "image/svg+xml"),
        ("/ui/vendor/uplot.js", "text/javascript"),
        ("/ui/vendor/uplot.LICENSE", "text/plain"),
    ] {
        let file = get(&admin, path).await;
        assert_eq!(file.status(), 200, "{path}");
        let found = file.headers()["content-type"].to_str().expect("text");
        assert!(found.starts_with(kind), "{path}: {found}");
    }
    let access = text(get(&admin, "/ui/access.json").await).await;
    assert_eq!(access, "{\"asks_for\":\"token\"}");
    assert_eq!(get(&admin, "/admin/v1/live").await.status(), 401);
    for gone in [
        "/ui/nothing.js",
        "/ui/../Cargo.toml",
        "/ui/%2e%2e/Cargo.toml",
    ] {
        assert_eq!(get(&admin, gone).await.status(), 404, "{gone}");
    }
}

#[tokio::test]
async fn cached_file_is_not_sent_again() {
    let (_opened, _, admin) = opened(|_| {}).await;
    let first = get(&admin, "/ui/main.js").await;
    let tag = first.headers()["etag"].clone();
    let again = Request::get("/ui/main.js").header("if-none-match", tag);
    let again = ask(&admin, again, &Value::Null).await;
    assert_eq!(again.status(), 304);
    assert_eq!(text(again).await, "");
    let access = text(get(&admin, "/ui/access.json").await).await;
    assert_eq!(access, "{\"asks_for\":\"nothing\"}");
}

#[tokio::test]
async fn dashboard_can_be_disabled() {
    let (_opened, _, admin) = opened(|config| config.admin.dashboard = false).await;
    assert_eq!(get(&admin, "/").await.status(), 404);
    assert_eq!(get(&admin, "/ui/main.js").await.status(), 404);
    assert_eq!(get(&admin, "/admin/v1/live").await.status(), 200);
    // A number above the documented maximum is an error.
    let far = get(&admin, "/admin/v1/live?after=9223372036854775808").await;
    assert_eq!(far.status(), 400);
}

/// Runs a key once, replays it four times and causes one conflict. Returns its id.
async fn six_requests(main: &Router, key: &str) -> String {
    let claim = json!({"scope": "charge", "key": key, "tenant": "acme"});
    let won = ask(main, Request::post("/v1/claims"), &claim).await;
    let won: Value = serde_json::from_str(&text(won).await).expect("JSON");
    let lease = &won["lease"];
    let id = won["id"].as_str().expect("an id").to_owned();
    let settle = json!({"token": lease["token"], "fence": lease["fence"], "outcome": "complete", "answer": {"body": 7}});
    ask(
        main,
        Request::post(format!("/v1/claims/{id}/settle")),
        &settle,
    )
    .await;
    for _ in 0..4 {
        ask(main, Request::post("/v1/claims"), &claim).await;
    }
    let other = json!({"scope": "charge", "key": key, "tenant": "acme", "payload": {"another": 1}});
    ask(main, Request::post("/v1/claims"), &other).await;
    id
}

#[tokio::test]
async fn live_statistics_are_per_second_with_hashed_hot_keys() {
    let (_opened, main, admin) = opened(|_| {}).await;
    let key = "a-key-that-comes-again-and-again";
    let id = six_requests(&main, key).await;

    let sum = |live: &Value, name: &str| -> u64 {
        let samples = live["samples"].as_array().expect("samples");
        samples
            .iter()
            .map(|sample| sample[name].as_u64().expect("a count"))
            .sum()
    };
    // A second is counted when it ends.
    let mut pause = tokio::time::interval(std::time::Duration::from_millis(50));
    for _ in 0..200 {
        pause.tick().await;
        let said = text(get(&admin, "/admin/v1/live").await).await;
        let live: Value = serde_json::from_str(&said).expect("JSON");
        if sum(&live, "replayed") + sum(&live, "handed_out") + sum(&live, "conflicts") < 6 {
            continue;
        }
        assert_eq!(
            (
                sum(&live, "replayed"),
                sum(&live, "handed_out"),
                sum(&live, "conflicts")
            ),
            (4, 1, 1)
        );
        let hot = &live["hot_keys"][0];
        assert_eq!(
            (&hot["id"], &hot["requests"], &hot["replayed"]),
            (&json!(id), &json!(6), &json!(4))
        );
        assert_eq!(
            (&hot["scope"], &hot["tenant"], &hot["key_hint"]),
            (&json!("charge"), &json!("acme"), &json!("a-key-th"))
        );
        assert!(!said.contains(key), "a whole key is shown nowhere");
        assert!(
            live["latency"]["replayed_ms"]["p99"].as_f64().is_some(),
            "{live}"
        );
        assert_eq!(
            (&live["store"]["reachable"], &live["engine"]["breaker"]),
            (&json!(true), &json!("closed"))
        );
        // A later query returns only newer samples.
        let last = live["samples"]
            .as_array()
            .and_then(|samples| samples.last());
        let last = last.expect("a sample")["number"]
            .as_u64()
            .expect("a number");
        let next = text(get(&admin, &format!("/admin/v1/live?after={last}")).await).await;
        let next: Value = serde_json::from_str(&next).expect("JSON");
        assert_eq!(sum(&next, "replayed"), 0, "{next}");
        return;
    }
    panic!("it is never told");
}
