//! Whatever is sent is bounded, and what is wrong with it is said without repeating it.

use serde_json::json;

use crate::support::{ACME, Server, Setup, call, read, send};

#[tokio::test]
async fn what_is_malformed_is_refused_in_problem_documents() {
    let server = Server::start("memory://").await;
    let id = "ab".repeat(32);
    let long = "k".repeat(256);
    for (path, body, status, code) in [
        ("/v1/claims", "{".to_owned(), 400, "request_invalid"),
        ("/v1/claims", "[]".to_owned(), 400, "request_invalid"),
        (
            "/v1/claims",
            json!({"key": "k"}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "sekret": 1}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "", "key": "k"}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": ""}).to_string(),
            400,
            "idempotency_key_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": long}).to_string(),
            400,
            "idempotency_key_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "no spaces"}).to_string(),
            400,
            "idempotency_key_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "token": "abc"}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "fingerprint": "zz"}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "actor": "a\nb"}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "derive": vec!["x"; 17]}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "policy": {"lease_ms": 0}}).to_string(),
            400,
            "request_invalid",
        ),
        (
            "/v1/claims",
            json!({"scope": "s", "key": "k", "policy": {"lease_ms": 50}}).to_string(),
            422,
            "request_refused",
        ),
        (
            "/v1/claims",
            r#"{"scope":"s","key":"k","payload":{"a":1,"a":2}}"#.to_owned(),
            422,
            "idempotency_payload_invalid",
        ),
        (
            "/v1/claims/nonsense/settle",
            "{}".to_owned(),
            400,
            "request_invalid",
        ),
        ("/v1/nothing", "{}".to_owned(), 404, "not_found"),
    ] {
        let reply = call(&server.api, "POST", path, Some(ACME), &body).await;
        assert_eq!(
            (reply.status, reply.code()),
            (status, code),
            "{path} {body}: {}",
            reply.text
        );
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        assert!(
            !reply.text.contains("sekret") && !reply.text.contains("no spaces"),
            "{}",
            reply.text
        );
    }
    let wait = call(
        &server.api,
        "GET",
        &format!("/v1/claims/{id}?wait_ms=x"),
        Some(ACME),
        "",
    )
    .await;
    assert_eq!(wait.status, 400);
    let method = call(
        &server.api,
        "DELETE",
        &format!("/v1/claims/{id}"),
        Some(ACME),
        "",
    )
    .await;
    assert_eq!((method.status, method.code()), (405, "method_not_allowed"));
    assert!(method.headers.contains_key("allow"));
    let bearer = format!("Bearer {ACME}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "text/plain"),
    ];
    let kind = read(send(&server.api, "POST", "/v1/claims", &headers, "{}").await).await;
    assert_eq!((kind.status, kind.code()), (415, "media_type_unsupported"));
}

#[tokio::test]
async fn a_body_past_the_bound_is_refused() {
    let mut setup = Setup::default();
    setup.config.max_request_bytes = 1000;
    let server = Server::with("memory://", setup).await;
    let ask = json!({"scope": "s", "key": "k", "payload": "x".repeat(1000)});
    let reply = server.post("/v1/claims", ask).await;
    assert_eq!(
        (reply.status, reply.code()),
        (413, "idempotency_body_too_large")
    );
    assert_eq!(
        server
            .post("/v1/claims", json!({"scope": "s", "key": "k"}))
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn checkpoints_and_answers_are_bounded() {
    let setup = Setup {
        policy: semel::Policy {
            max_answer_bytes: 100,
            ..semel::Policy::default()
        },
        ..Setup::default()
    };
    let server = Server::with("memory://", setup).await;
    let won = server
        .post("/v1/claims", json!({"scope": "s", "key": "k"}))
        .await;
    let ((token, fence), id) = (won.lease(), won.text("id"));
    let large = json!({"token": token, "fence": fence, "checkpoint": "x".repeat(64 * 1024)});
    let renewed = server.post(&format!("/v1/claims/{id}/renew"), large).await;
    assert_eq!((renewed.status, renewed.code()), (422, "request_refused"));
    let large = json!({"token": token, "fence": fence, "outcome": "complete", "answer": {"body": "x".repeat(200)}});
    let settled = server.post(&format!("/v1/claims/{id}/settle"), large).await;
    assert_eq!(
        settled.text("status"),
        "completed",
        "never run again for being large"
    );
    let replay = server
        .post("/v1/claims", json!({"scope": "s", "key": "k"}))
        .await;
    assert_eq!(replay.body["answer"], json!({"body_omitted_bytes": 202}));
}
