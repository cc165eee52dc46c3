//! Every pair of SDKs, over every pair of transports: what a client sees, and how often the tools
//! acted.

use serde_json::{Value, json};

use crate::support::{Place, Sdk};

fn texts(seen: &Value) -> &str {
    seen["text"][0].as_str().unwrap_or_default()
}

fn all<'a>(said: &'a Value, name: &str) -> &'a Vec<Value> {
    said[name].as_array().expect("a list")
}

/// What a client saw behind a gateway, and what the servers did.
fn check(said: &Value, place: &Place) {
    lists(said);
    keys(said, place);
    refusals(said);
    passed_on(said, place);
    meanwhile(said, place);
    failures(said, place);
    together(said, place);
    let others = (said["resource"].as_str(), said["prompt"].as_str());
    assert_eq!(others, (Some("the note a"), Some("Greet Ann.")));
}

/// A list with the argument, where it helps, and the built-in tool.
fn lists(said: &Value) {
    let tools = &said["tools"];
    assert_eq!(tools["act"], json!(["idempotencyKey", "seconds", "what"]));
    assert_eq!(tools["count"], json!([]), "read-only tools gain nothing");
    assert_eq!(tools["own_key"], json!(["idempotency_key", "what"]));
    assert_eq!(tools["semel_status"], json!(["idempotencyKey", "tool"]));
}

/// Without a key every call acts; with one, the first does.
fn keys(said: &Value, place: &Place) {
    let acts = ["act plain", "act one", "act two"].map(|line| place.acts(line));
    assert_eq!(acts, [2, 1, 0]);
    let (first, replays) = all(said, "key").split_first().expect("three");
    assert_eq!(
        (&first["replayed"], &first["error"]),
        (&json!(false), &json!(false))
    );
    for replay in replays.iter().chain([&said["other_name"], &said["meta"]]) {
        assert_eq!(replay["replayed"], true, "{replay}");
        assert_eq!(replay["text"], first["text"]);
        assert_eq!(replay["structured"], first["structured"]);
    }
    assert_eq!(said["status"]["structured"]["state"], "completed");
    assert_eq!(said["no_status"]["structured"]["state"], "unknown");
}

fn refusals(said: &Value) {
    assert_eq!(said["mismatch"]["code"], "idempotency_conflict");
    assert!(texts(&said["mismatch"]).contains("with other arguments"));
    let bad = texts(&said["bad_key"]);
    assert!(
        bad.contains("Nothing was done") && !bad.contains("not a key"),
        "{bad}"
    );
}

/// A tool's own key reaches it; the systems behind get one that stays the same.
fn passed_on(said: &Value, place: &Place) {
    assert_eq!(
        (texts(&said["own_key"][0]), place.acts("own x")),
        ("k-own", 1)
    );
    let keys = all(said, "downstream");
    assert!(texts(&keys[0]).starts_with("semel-"), "{keys:?}");
    assert_eq!(
        (texts(&keys[0]), place.acts("downstream x")),
        (texts(&keys[1]), 1)
    );
}

/// Progress and questions get through while a call runs under its key.
fn meanwhile(said: &Value, place: &Place) {
    assert_eq!(all(said, "progress").len(), 3, "{}", said["progress"]);
    assert_eq!((texts(&said["slowly"]), place.acts("slowly p")), ("p", 1));
    // The protocol without sessions has no questions of the server's.
    if said["version"] != "2026-07-28" {
        let asked = all(said, "asked");
        let first = (texts(&asked[0]), place.acts("ask a accept"));
        assert_eq!(first, ("accept", 1), "{asked:?}");
        assert_eq!(asked[1]["replayed"], true);
    }
}

/// A failure of a tool that destroys nothing is tried again; what only reads is never a replay.
fn failures(said: &Value, place: &Place) {
    let is = |seen: &Value, error: bool| seen["error"] == error && seen["replayed"] == false;
    assert!(all(said, "failed").iter().all(|seen| is(seen, true)));
    assert!(all(said, "read_only").iter().all(|seen| is(seen, false)));
    assert_eq!(place.acts("fail f"), 2);
    assert_eq!(said["unknown_tool"]["error"], true);
}

/// Five at once: one acts, and all get its result.
fn together(said: &Value, place: &Place) {
    assert_eq!(place.acts("act t"), 1);
    let together = all(said, "together");
    let alike = |seen: &Value| seen["text"] == together[0]["text"] && seen["error"] == false;
    assert!(together.iter().all(alike), "{together:?}");
    let ran = together.iter().filter(|seen| seen["replayed"] == false);
    assert_eq!(ran.count(), 1);
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
