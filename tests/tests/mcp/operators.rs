//! What operators have of a gateway at an address of its own: metrics, records, the dashboard, doubts to resolve.

use semel_testkit::private::free_port;
use serde_json::{Value, json};

use crate::support::{Place, Sdk};
use crate::talk::{Talk, code, is_replay};

/// Status and body.
async fn get(admin: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let mut request = reqwest::Client::new().get(format!("http://{admin}{path}"));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.text().await.expect("a body"))
}

#[tokio::test]
async fn operators_see_what_a_gateway_does_and_resolve_its_doubts() {
    let place = Place::new();
    let admin = format!("127.0.0.1:{}", free_port());
    let flags = ["--admin", &admin, "--name", "shop", "--call-limit", "1s"];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "seen", "idempotencyKey": "an-order-of-somebodys"});
    assert!(!is_replay(&talk.call("act", &call).await));
    assert!(is_replay(&talk.call("act", &call).await));

    let (status, metrics) = get(&admin, "/metrics", None).await;
    assert_eq!(status, 200);
    for line in [
        "semel_requests_total{scope=\"shop/act\",outcome=\"ran\"} 1",
        "semel_requests_total{scope=\"shop/act\",outcome=\"replayed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let (_, records) = get(&admin, "/admin/v1/records", None).await;
    assert!(records.contains("shop/act"), "{records}");
    for text in [&metrics, &records] {
        assert!(!text.contains("order-of-somebodys"), "a key is in\n{text}");
    }
    assert!(get(&admin, "/", None).await.1.contains("<title>"));
    assert_eq!(get(&admin, "/healthz", None).await.0, 200);

    // A call without an answer is in doubt, until an operator says what became of it.
    let doubtful =
        json!({"what": "late", "until": "/no/such/file", "idempotencyKey": "another-order"});
    let result = talk.call("act_then_wait", &doubtful).await;
    assert_eq!(code(&result), "idempotency_in_doubt");
    let (_, doubts) = get(&admin, "/admin/v1/records?state=in_doubt", None).await;
    let doubts: Value = serde_json::from_str(&doubts).expect("JSON");
    let doubt = &doubts["records"][0];
    let id = doubt["id"].as_str().unwrap_or_else(|| panic!("{doubts}"));
    let resolve = json!({"fence": doubt["fence"], "actor": "jo", "reason": "it never left", "outcome": "released"});
    let url = format!("http://{admin}/admin/v1/records/{id}/resolve");
    let resolved = reqwest::Client::new().post(url).json(&resolve).send().await;
    assert_eq!(resolved.expect("an answer").status(), 200);
    let status = talk.status("act_then_wait", "another-order").await;
    assert_eq!(status, "released");
    talk.leave().await;
}

#[tokio::test]
async fn whoever_may_change_records_shows_a_token_or_is_on_this_machine() {
    let place = Place::new();
    let server = place.server(Sdk::Python);
    let open = place.gateway(&["--admin", "0.0.0.0:0"], &server);
    let refused = place.command(&open).output().expect("it ends");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("--admin-token-file"), "{said}");

    let file = place.folder.join("token");
    std::fs::write(&file, "an-operators-token-1\n").expect("a folder of our own");
    let admin = format!("127.0.0.1:{}", free_port());
    let flags = [
        "--admin",
        &admin,
        "--admin-token-file",
        file.to_str().expect("a path in UTF-8"),
    ];
    let talk = Talk::start(&place, &place.gateway(&flags, &server)).await;
    for path in ["/metrics", "/admin/v1/records"] {
        assert_eq!(get(&admin, path, None).await.0, 401, "{path}");
        let shown = get(&admin, path, Some("an-operators-token-1")).await;
        assert_eq!(shown.0, 200, "{path}: {}", shown.1);
    }
    talk.leave().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_said_before_anything_runs() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = taken.local_addr().expect("a port").to_string();
    let command = place.gateway(&["--admin", &admin], &place.server(Sdk::Python));
    let refused = place.command(&command).output().expect("it ends");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("another process listens there"), "{said}");
}
