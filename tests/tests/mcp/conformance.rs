//! The protocol is unchanged: a fixed script of messages is played to a server with and without the
//! gateway, and what comes back is compared message by message. `tests/mcp/raw.py` plays it.

use serde_json::{Value, json};

use crate::support::{Place, Sdk, needs, said, words};

fn raw(place: &Place, target: &str) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/raw.py");
    let command = words(&[
        &needs("SEMEL_TEST_MCP_PYTHON"),
        std::path::Path::new(script),
    ]);
    let seen = said(place.command(&command).arg(target));
    serde_json::from_value(seen).expect("messages")
}

/// Takes out of a list what the gateway adds. → how much that was.
fn without_ours(messages: &mut [Value]) -> usize {
    let mut removed = 0;
    let lists = messages
        .iter_mut()
        .filter_map(|message| message.pointer_mut("/result/tools")?.as_array_mut());
    for tools in lists {
        let before = tools.len();
        tools.retain(|tool| tool["name"] != "semel_status");
        removed += before - tools.len();
        for tool in tools {
            let properties = tool.pointer_mut("/inputSchema/properties");
            let gained = properties.and_then(|all| all.as_object_mut()?.remove("idempotencyKey"));
            removed += usize::from(gained.is_some());
        }
    }
    removed
}

fn compare(direct: &[Value], mut through: Vec<Value>) {
    assert!(
        without_ours(&mut through) > 3,
        "the list was not changed at all"
    );
    for (n, (one, other)) in direct.iter().zip(&through).enumerate() {
        assert_eq!(one, other, "message {n}");
    }
    assert_eq!(direct.len(), through.len());
    // The script has seen what it is about.
    let has = |what: &dyn Fn(&Value) -> bool| direct.iter().filter(|message| what(message)).count();
    assert_eq!(
        has(&|message| message["method"] == "notifications/progress"),
        6
    );
    assert_eq!(has(&|message| message["method"] == "elicitation/create"), 1);
    assert!(has(&|message| message["error"].is_object()) >= 1);
    assert_eq!(
        has(&|message| message["result"]["protocolVersion"] == "2025-06-18"),
        1
    );
}

fn stdio(sdk: Sdk) {
    let (alone, behind) = (Place::new(), Place::new());
    let direct = raw(&alone, &json!(alone.server(sdk)).to_string());
    let command = behind.gateway(&[], &behind.server(sdk));
    compare(&direct, raw(&behind, &json!(command).to_string()));
    assert_eq!(alone.ledger(), behind.ledger());
}

async fn http(sdk: Sdk) {
    let (alone, behind) = (Place::new(), Place::new());
    let (_server, url) = alone.http_server(sdk).await;
    let direct = raw(&alone, &url);
    let (_server, upstream) = behind.http_server(sdk).await;
    let (_gateway, url) = behind.http_gateway(&["--upstream", &upstream], &[]).await;
    compare(&direct, raw(&behind, &url));
    assert_eq!(alone.ledger(), behind.ledger());
}

#[test]
fn a_python_server_says_the_same_over_stdio() {
    stdio(Sdk::Python);
}

#[test]
fn a_typescript_server_says_the_same_page_by_page_over_stdio() {
    stdio(Sdk::TypeScript);
}

#[tokio::test]
async fn a_python_server_says_the_same_over_http() {
    http(Sdk::Python).await;
}

#[tokio::test]
async fn a_typescript_server_says_the_same_page_by_page_over_http() {
    http(Sdk::TypeScript).await;
}
