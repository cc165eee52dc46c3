use semel::{Mode, Semel};
use serde_json::{Value, json};

use super::*;
use crate::settings::{KeyRule, Settings, ToolRule};

/// Longer than anything here takes, and shorter than what would be waited for in vain.
const SOON: Duration = Duration::from_secs(5);

/// Both ends of a session, as their peers see them.
struct Peers {
    client: mpsc::Sender<Bytes>,
    client_hears: mpsc::Receiver<Bytes>,
    server: mpsc::Sender<Bytes>,
    server_hears: mpsc::Receiver<Bytes>,
}

impl Peers {
    /// Lets them talk; the server takes `room` messages before it reads any.
    async fn meet(settings: Settings, room: usize) -> Self {
        let semel = Semel::open("memory://").await.unwrap();
        let gateway = Gateway::new(semel, settings).unwrap();
        let (client, says) = mpsc::channel(QUEUE);
        let (told, client_hears) = mpsc::channel(QUEUE);
        let client_end = End { says, told };
        let (server, says) = mpsc::channel(QUEUE);
        let (told, server_hears) = mpsc::channel(room);
        let server_end = End { says, told };
        let caller = Caller::default();
        tokio::spawn(Session::run(gateway, caller, client_end, server_end, SOON));
        Self {
            client,
            client_hears,
            server,
            server_hears,
        }
    }

    async fn client_says(&self, message: Value) {
        self.client.send(message.to_string().into()).await.unwrap();
    }

    async fn server_says(&self, message: Value) {
        self.server.send(message.to_string().into()).await.unwrap();
    }

    async fn client_hears(&mut self) -> Value {
        next(&mut self.client_hears).await
    }

    async fn server_hears(&mut self) -> Value {
        next(&mut self.server_hears).await
    }
}

async fn next(hears: &mut mpsc::Receiver<Bytes>) -> Value {
    let heard = tokio::time::timeout(SOON, hears.recv()).await;
    serde_json::from_slice(&heard.expect("in time").expect("a message")).unwrap()
}

fn call(id: u64, arguments: &Value) -> Value {
    let params = json!({"name": "pay", "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn observing() -> Settings {
    let mut settings = Settings::new("test");
    settings.policy.mode = Mode::Observe;
    settings
}

#[tokio::test]
async fn a_server_that_takes_no_more_for_a_while_is_still_heard() {
    let mut peers = Peers::meet(Settings::new("test"), 1).await;
    for id in 0..4 {
        peers
            .client_says(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
            .await;
    }
    // One is with the server, one is on its way, and two can't come to it.
    while peers.client.capacity() != QUEUE - 2 {
        tokio::task::yield_now().await;
    }
    let note = json!({"jsonrpc": "2.0", "method": "notifications/message"});
    peers.server_says(note.clone()).await;
    assert_eq!(peers.client_hears().await, note);
    for id in 0..4 {
        assert_eq!(peers.server_hears().await["id"], id);
    }
}

#[tokio::test]
async fn a_call_that_comes_when_the_server_has_just_ended_was_not_sent() {
    let mut peers = Peers::meet(Settings::new("test"), QUEUE).await;
    peers
        .client_says(call(1, &json!({"idempotencyKey": "k"})))
        .await;
    // It ends while it is asked for its tools. Nobody reads its input any more, and nobody has closed it yet.
    assert_eq!(peers.server_hears().await["method"], "tools/list");
    let (gone, _) = mpsc::channel(1);
    drop(std::mem::replace(&mut peers.server, gone));
    let said = peers.client_hears().await;
    let meta = &said["result"]["_meta"];
    assert_eq!(meta["semel/code"], "idempotency_not_sent", "{said}");
    assert!(peers.server_hears.try_recv().is_err(), "it was sent");
}

#[tokio::test]
async fn an_empty_key_is_no_key_and_does_not_reach_the_server() {
    let mut peers = Peers::meet(Settings::new("test"), QUEUE).await;
    for empty in [json!(""), json!(null)] {
        peers
            .client_says(call(1, &json!({"to": "a", "idempotencyKey": empty})))
            .await;
        let mut heard = peers.server_hears().await;
        if heard["method"] == "tools/list" {
            let tools = json!([{"name": "pay", "inputSchema": {"additionalProperties": false}}]);
            peers
                .server_says(json!({"id": heard["id"], "result": {"tools": tools}}))
                .await;
            heard = peers.server_hears().await;
        }
        assert_eq!(heard["params"]["arguments"], json!({"to": "a"}), "{heard}");
        peers.server_says(json!({"id": 1, "result": {}})).await;
        assert_eq!(peers.client_hears().await["result"], json!({}));
    }
}

#[tokio::test]
async fn a_server_that_gives_no_list_is_asked_once_for_a_while() {
    let mut peers = Peers::meet(Settings::new("test"), QUEUE).await;
    let mut lists = 0;
    for id in 1..=3 {
        let key = format!("k-{id}");
        peers
            .client_says(call(id, &json!({"idempotencyKey": key})))
            .await;
        loop {
            let heard = peers.server_hears().await;
            if heard["method"] == "tools/call" {
                break;
            }
            lists += 1;
            let error = json!({"code": -32603, "message": "no"});
            peers
                .server_says(json!({"id": heard["id"], "error": error}))
                .await;
        }
        peers.server_says(json!({"id": id, "result": {}})).await;
        assert_eq!(peers.client_hears().await["id"], id);
    }
    assert_eq!(lists, 1);
}

#[tokio::test]
async fn what_is_only_observed_is_refused_nothing() {
    let mut settings = observing();
    settings.tools.push(ToolRule {
        name: "pay".to_owned(),
        key: Some(KeyRule::Required),
        ..ToolRule::default()
    });
    let mut peers = Peers::meet(settings, QUEUE).await;
    let bad = json!({"idempotencyKey": "no key at all"});
    let batch = json!([call(7, &json!({"idempotencyKey": "k"}))]);
    for message in [call(1, &json!({})), call(2, &bad), batch] {
        peers.client_says(message.clone()).await;
        let mut heard = peers.server_hears().await;
        if heard["method"] == "tools/list" {
            peers
                .server_says(json!({"id": heard["id"], "result": {"tools": []}}))
                .await;
            heard = peers.server_hears().await;
        }
        assert_eq!(heard, message);
    }
}

#[tokio::test]
async fn what_is_only_observed_has_no_limit_and_is_answered_as_the_server_answers() {
    let mut settings = observing();
    settings.call_limit = Duration::from_millis(50);
    let mut peers = Peers::meet(settings, QUEUE).await;
    peers
        .client_says(call(1, &json!({"idempotencyKey": "k"})))
        .await;
    let list = peers.server_hears().await;
    peers
        .server_says(json!({"id": list["id"], "result": {"tools": []}}))
        .await;
    assert_eq!(peers.server_hears().await["method"], "tools/call");
    // Past the limit. Enforced, this would be a doubt.
    let silence = tokio::time::timeout(Duration::from_millis(300), peers.client_hears.recv());
    assert!(silence.await.is_err(), "something was said");
    let error = json!({"id": 1, "error": {"code": -32603, "message": "oh"}});
    peers.server_says(error.clone()).await;
    assert_eq!(peers.client_hears().await, error);
}
