//! What operators have of a gateway at an address of its own: metrics, records, the dashboard,
//! doubts to resolve.

use semel_testkit::private::free_port;
use serde_json::{Value, json};

use crate::support::{Place, Sdk};
use crate::talk::{Talk, code, is_replay};

const TOKEN: &str = "an-operators-token-1";

/// A file with the token.
fn token_file(place: &Place) -> String {
    let file = place.folder.join("token");
    std::fs::write(&file, TOKEN).expect("a folder of our own");
    file.to_str().expect("a path in UTF-8").to_owned()
}

/// Status and body.
async fn get(admin: &str, path: &str, token: &str) -> (u16, String) {
    let request = reqwest::Client::new().get(format!("http://{admin}{path}"));
    let request = request.bearer_auth(token);
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.text().await.expect("a body"))
}

#[tokio::test]
async fn operators_see_what_a_gateway_does_and_resolve_its_doubts() {
    let place = Place::new();
    let admin = format!("127.0.0.1:{}", free_port());
    let token = token_file(&place);
    let flags = ["--admin", &admin, "--admin-token-file", &token];
    let flags = [&flags[..], &["--name", "shop", "--call-limit", "5s"]].concat();
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "seen", "idempotencyKey": "an-order-of-somebodys"});
    assert!(!is_replay(&talk.call("act", &call).await));
    assert!(is_replay(&talk.call("act", &call).await));

    let (status, metrics) = get(&admin, "/metrics", TOKEN).await;
    assert_eq!(status, 200);
    for line in [
        "semel_requests_total{scope=\"shop/act\",operation=\"act\",outcome=\"ran\"} 1",
        "semel_requests_total{scope=\"shop/act\",operation=\"act\",outcome=\"replayed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let (_, records) = get(&admin, "/admin/v1/records", TOKEN).await;
    assert!(records.contains("shop/act"), "{records}");
    for text in [&metrics, &records] {
        assert!(!text.contains("order-of-somebodys"), "a key is in\n{text}");
    }
    assert!(get(&admin, "/", TOKEN).await.1.contains("<title>"));
    assert_eq!(get(&admin, "/healthz", TOKEN).await.0, 200);

    // A call without an answer is in doubt, until an operator says what became of it.
    let doubtful =
        json!({"what": "late", "until": "/no/such/file", "idempotencyKey": "another-order"});
    let result = talk.call("act_then_wait", &doubtful).await;
    assert_eq!(code(&result), "idempotency_in_doubt");
    let (_, doubts) = get(&admin, "/admin/v1/records?state=in_doubt", TOKEN).await;
    let doubts: Value = serde_json::from_str(&doubts).expect("JSON");
    let doubt = &doubts["records"][0];
    let id = doubt["id"].as_str().unwrap_or_else(|| panic!("{doubts}"));
    let resolve = json!({"fence": doubt["fence"], "actor": "jo", "reason": "it never left", "outcome": "released"});
    let url = format!("http://{admin}/admin/v1/records/{id}/resolve");
    let resolved = reqwest::Client::new()
        .post(url)
        .bearer_auth(TOKEN)
        .json(&resolve);
    let resolved = resolved.send().await;
    assert_eq!(resolved.expect("an answer").status(), 200);
    let status = talk.status("act_then_wait", "another-order").await;
    assert_eq!(status, "released");
    talk.leave().await;
}

#[tokio::test]
async fn nobody_changes_records_without_the_token() {
    let place = Place::new();
    let server = place.server(Sdk::Python);
    let admin = format!("127.0.0.1:{}", free_port());
    let open = place.gateway(&["--admin", &admin], &server);
    let refused = place.command(&open).output().expect("it ends");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("--admin-token-file"), "{said}");

    let token = token_file(&place);
    let flags = ["--admin", &admin, "--admin-token-file", &token];
    let talk = Talk::start(&place, &place.gateway(&flags, &server)).await;
    for path in ["/metrics", "/admin/v1/records"] {
        let another = get(&admin, path, "another-token-altogether").await;
        assert_eq!(another.0, 401, "{path}");
        let shown = get(&admin, path, TOKEN).await;
        assert_eq!(shown.0, 200, "{path}: {}", shown.1);
    }
    talk.leave().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_said_before_anything_runs() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = taken.local_addr().expect("a port").to_string();
    let token = token_file(&place);
    let flags = ["--admin", &admin, "--admin-token-file", &token];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let refused = place.command(&command).output().expect("it ends");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("another process listens there"), "{said}");
    assert!(!said.contains("--listen"), "{said}");
}
