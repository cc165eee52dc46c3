//! Limits and validation of requests. Error messages never repeat the content of a request.

use serde_json::json;

use crate::support::{ACME, Server, Setup, call, read, send};

/// The body of a claim, and the expected status and code.
#[rustfmt::skip]
const MALFORMED: &[(&str, u16, &str)] = &[
    ("{", 400, "request_invalid"),
    ("[]", 400, "request_invalid"),
    (r#"{"key":"k"}"#, 400, "request_invalid"),
    (r#"{"scope":"s","key":"k","sekret":1}"#, 400, "request_invalid"),
    (r#"{"scope":"","key":"k"}"#, 400, "request_invalid"),
    (r#"{"scope":"s","key":""}"#, 400, "idempotency_key_invalid"),
    (r#"{"scope":"s","key":"no spaces"}"#, 400, "idempotency_key_invalid"),
    (r#"{"scope":"s","key":"k","token":"abc"}"#, 400, "request_invalid"),
    (r#"{"scope":"s","key":"k","fingerprint":"zz"}"#, 400, "request_invalid"),
    (r#"{"scope":"s","key":"k","actor":"a\nb"}"#, 400, "request_invalid"),
    (r#"{"scope":"s","key":"k","policy":{"lease_ms":0}}"#, 400, "request_invalid"),
    (r#"{"scope":"s","key":"k","policy":{"lease_ms":50}}"#, 422, "request_refused"),
    (r#"{"scope":"s","key":"k","payload":1,"fingerprint":"00112233445566778899aabbccddeeff"}"#, 422, "request_refused"),
    (r#"{"scope":"s","key":"k","payload":{"a":1,"a":2}}"#, 400, "idempotency_payload_invalid"),
];

#[tokio::test]
async fn malformed_requests_get_problem_documents() {
    let server = Server::start("memory://").await;
    let long = json!({"scope": "s", "key": "k".repeat(256)}).to_string();
    let many = json!({"scope": "s", "key": "k", "derive": vec!["x"; 17]}).to_string();
    let more = [
        (long.as_str(), 400, "idempotency_key_invalid"),
        (many.as_str(), 400, "request_invalid"),
    ];
    for (body, status, code) in MALFORMED.iter().chain(&more) {
        let reply = call(&server.api, "POST", "/v1/claims", Some(ACME), body).await;
        assert_eq!(
            (reply.status, reply.code()),
            (*status, *code),
            "{body}: {}",
            reply.text
        );
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        let repeats = reply.text.contains("sekret") || reply.text.contains("no spaces");
        assert!(!repeats, "{}", reply.text);
    }
}

#[tokio::test]
async fn unknown_paths_and_media_types_get_problem_documents() {
    let server = Server::start("memory://").await;
    let id = "ab".repeat(32);
    let to = |method: &'static str, path: String, body: &'static str| {
        let api = server.api.clone();
        async move { call(&api, method, &path, Some(ACME), body).await }
    };
    let nonsense = to("POST", "/v1/claims/nonsense/settle".into(), "{}").await;
    assert_eq!((nonsense.status, nonsense.code()), (400, "request_invalid"));
    let nothing = to("POST", "/v1/nothing".into(), "{}").await;
    assert_eq!((nothing.status, nothing.code()), (404, "not_found"));
    let wait = to("GET", format!("/v1/claims/{id}?wait_ms=x"), "").await;
    assert_eq!((wait.status, wait.code()), (400, "request_invalid"));
    let method = to("DELETE", format!("/v1/claims/{id}"), "").await;
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
async fn oversized_body_is_refused() {
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
async fn checkpoints_and_answers_have_a_size_limit() {
    let setup = Setup {
        policy: semel::Policy::default().with_max_answer_bytes(100),
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
