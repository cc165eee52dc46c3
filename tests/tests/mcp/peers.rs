//! Every pair of SDKs, over every pair of transports: what a client sees, and how often the tools acted.

use serde_json::{Value, json};

use crate::support::{Place, Sdk};

fn texts(seen: &Value) -> &str {
    seen["text"][0].as_str().unwrap_or_default()
}

/// What a client saw behind a gateway, and what the servers did.
fn check(said: &Value, place: &Place) {
    let all = |name: &str| said[name].as_array().expect(name).clone();
    // A list with the argument, where it helps, and the built-in tool.
    assert_eq!(
        said["tools"]["act"],
        json!(["idempotencyKey", "seconds", "what"])
    );
    assert_eq!(
        said["tools"]["count"],
        json!([]),
        "read-only tools gain nothing"
    );
    assert!(
        said["tools"]["own_key"]
            .as_array()
            .unwrap()
            .iter()
            .all(|name| name != "idempotencyKey")
    );
    assert_eq!(
        said["tools"]["semel_status"],
        json!(["idempotencyKey", "tool"])
    );
    // Without a key every call acts; with one, the first does.
    assert_eq!(place.acts("act plain"), 2);
    assert_eq!(place.acts("act one"), 1);
    assert_eq!(place.acts("act two"), 0);
    let first = &said["key"][0];
    assert_eq!(
        (first["replayed"].clone(), first["error"].clone()),
        (json!(false), json!(false))
    );
    let replays = all("key")
        .into_iter()
        .skip(1)
        .chain([said["other_name"].clone(), said["meta"].clone()]);
    for replay in replays {
        assert_eq!(replay["replayed"], true, "{replay}");
        assert_eq!(
            (&replay["text"], &replay["structured"]),
            (&first["text"], &first["structured"])
        );
    }
    assert_eq!(said["mismatch"]["code"], "idempotency_conflict");
    assert!(texts(&said["mismatch"]).contains("with other arguments"));
    assert!(
        texts(&said["bad_key"]).contains("Nothing was done")
            && !texts(&said["bad_key"]).contains("not a key")
    );
    // A tool's own key reaches it; the systems behind get one that stays the same.
    assert_eq!(
        (texts(&said["own_key"][0]), place.acts("own x")),
        ("k-own", 1)
    );
    assert!(
        texts(&said["downstream"][0]).starts_with("semel-"),
        "{}",
        said["downstream"]
    );
    assert_eq!(
        (texts(&said["downstream"][0]), place.acts("downstream x")),
        (texts(&said["downstream"][1]), 1)
    );
    // Progress and questions get through while a call runs under its key.
    assert_eq!(
        said["progress"].as_array().unwrap().len(),
        3,
        "{}",
        said["progress"]
    );
    assert_eq!((texts(&said["slowly"]), place.acts("slowly p")), ("p", 1));
    // The protocol without sessions has no questions of the server's.
    if said["version"] != "2026-07-28" {
        assert_eq!(
            (texts(&said["asked"][0]), place.acts("ask a accept")),
            ("accept", 1),
            "{}",
            said["asked"]
        );
        assert_eq!(said["asked"][1]["replayed"], true);
    }
    assert!(
        all("read_only")
            .iter()
            .all(|seen| seen["replayed"] == false && seen["error"] == false)
    );
    // A failure of a tool that destroys nothing is tried again.
    assert!(
        all("failed")
            .iter()
            .all(|seen| seen["error"] == true && seen["replayed"] == false)
    );
    assert_eq!(place.acts("fail f"), 2);
    assert_eq!(said["unknown_tool"]["error"], true);
    assert_eq!(said["status"]["structured"]["state"], "completed");
    assert_eq!(said["no_status"]["structured"]["state"], "unknown");
    // Five at once: one acts, and all get its result.
    assert_eq!(place.acts("act t"), 1);
    assert!(
        all("together")
            .iter()
            .all(|seen| seen["text"] == said["together"][0]["text"] && seen["error"] == false)
    );
    assert_eq!(
        all("together")
            .iter()
            .filter(|seen| seen["replayed"] == false)
            .count(),
        1
    );
    assert_eq!(
        (said["resource"].as_str(), said["prompt"].as_str()),
        (Some("the note a"), Some("Greet Ann."))
    );
}

fn stdio(client: Sdk, server: Sdk, mode: &str) {
    let place = Place::new();
    let command = place.gateway(&[], &place.server(server));
    let said = place.client(client, mode, &json!(command).to_string());
    check(&said, &place);
}

#[test]
fn python_client_and_server_over_stdio() {
    stdio(Sdk::Python, Sdk::Python, "legacy");
}

#[tokio::test]
async fn the_protocol_without_sessions_over_both() {
    let place = Place::new();
    let command = place.gateway(&[], &place.server(Sdk::Python));
    let said = place.client(Sdk::Python, "auto", &json!(command).to_string());
    assert_eq!(said["version"], "2026-07-28");
    check(&said, &place);
    let place = Place::new();
    let (_server, upstream) = place.http_server(Sdk::Python).await;
    let (_gateway, url) = place.http_gateway(&["--upstream", &upstream], &[]).await;
    let said = place.client(Sdk::Python, "auto", &url);
    assert_eq!(said["version"], "2026-07-28");
    check(&said, &place);
}

#[test]
fn python_client_and_typescript_server_over_stdio() {
    stdio(Sdk::Python, Sdk::TypeScript, "auto");
}

#[test]
fn typescript_client_and_python_server_over_stdio() {
    stdio(Sdk::TypeScript, Sdk::Python, "");
}

#[test]
fn typescript_client_and_server_over_stdio() {
    stdio(Sdk::TypeScript, Sdk::TypeScript, "");
}

async fn http(client: Sdk, server: Sdk, mode: &str) {
    let place = Place::new();
    let (_server, upstream) = place.http_server(server).await;
    let (_gateway, url) = place.http_gateway(&["--upstream", &upstream], &[]).await;
    check(&place.client(client, mode, &url), &place);
}

#[tokio::test]
async fn python_client_and_server_over_http() {
    http(Sdk::Python, Sdk::Python, "legacy").await;
}

#[tokio::test]
async fn python_client_and_typescript_server_over_http() {
    http(Sdk::Python, Sdk::TypeScript, "auto").await;
}

#[tokio::test]
async fn typescript_client_and_python_server_over_http() {
    http(Sdk::TypeScript, Sdk::Python, "").await;
}

#[tokio::test]
async fn typescript_client_and_server_over_http() {
    http(Sdk::TypeScript, Sdk::TypeScript, "").await;
}

/// A client on standard input and output, a server behind HTTP.
#[tokio::test]
async fn a_server_behind_http_for_a_client_on_stdio() {
    for (client, server) in [
        (Sdk::Python, Sdk::TypeScript),
        (Sdk::TypeScript, Sdk::Python),
    ] {
        let place = Place::new();
        let (_server, upstream) = place.http_server(server).await;
        let command = place.gateway(&["--upstream", &upstream], &[]);
        check(
            &place.client(client, "legacy", &json!(command).to_string()),
            &place,
        );
    }
}

/// Clients on HTTP, a process of the server's for each session.
#[tokio::test]
async fn a_server_on_stdio_for_clients_on_http() {
    for (client, server) in [
        (Sdk::Python, Sdk::TypeScript),
        (Sdk::TypeScript, Sdk::Python),
    ] {
        let place = Place::new();
        let (_gateway, url) = place.http_gateway(&[], &place.server(server)).await;
        check(&place.client(client, "auto", &url), &place);
    }
}
