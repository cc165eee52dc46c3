#![expect(clippy::disallowed_methods, reason = "peers are tasks on real time")]

use semel::{Mode, Semel};
use serde_json::{Value, json};

use super::*;
use crate::peer::QUEUE;
use crate::settings::{KeyRule, Settings, ToolRule};

/// Longer than any step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Both ends of a session, as a test drives them.
struct Peers {
    client: mpsc::Sender<Bytes>,
    client_receives: mpsc::Receiver<Bytes>,
    server: mpsc::Sender<Bytes>,
    server_receives: mpsc::Receiver<Bytes>,
}

impl Peers {
    /// Starts a session. The server's channel holds `room` messages.
    async fn start(settings: Settings, room: usize) -> Self {
        let semel = Semel::open("memory://").await.unwrap();
        let gateway = Gateway::new(semel, settings).unwrap();
        let (client, incoming) = mpsc::channel(QUEUE);
        let (outgoing, client_receives) = mpsc::channel(QUEUE);
        let client_end = Peer { incoming, outgoing };
        let (server, incoming) = mpsc::channel(QUEUE);
        let (outgoing, server_receives) = mpsc::channel(room);
        let server_end = Peer { incoming, outgoing };
        let caller = Caller::default();
        tokio::spawn(Session::run(
            gateway, caller, client_end, server_end, TIMEOUT,
        ));
        Self {
            client,
            client_receives,
            server,
            server_receives,
        }
    }

    async fn client_sends(&self, message: Value) {
        self.client.send(message.to_string().into()).await.unwrap();
    }

    async fn server_sends(&self, message: Value) {
        self.server.send(message.to_string().into()).await.unwrap();
    }

    async fn client_receives(&mut self) -> Value {
        next(&mut self.client_receives).await
    }

    async fn server_receives(&mut self) -> Value {
        next(&mut self.server_receives).await
    }
}

async fn next(hears: &mut mpsc::Receiver<Bytes>) -> Value {
    let received = tokio::time::timeout(TIMEOUT, hears.recv()).await;
    serde_json::from_slice(&received.expect("in time").expect("a message")).unwrap()
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
async fn server_that_stops_reading_is_still_heard() {
    let mut peers = Peers::start(Settings::new("test"), 1).await;
    for id in 0..4 {
        peers
            .client_sends(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
            .await;
    }
    // One message is in the server's channel, one is being sent, and two wait.
    while peers.client.capacity() != QUEUE - 2 {
        tokio::task::yield_now().await;
    }
    let note = json!({"jsonrpc": "2.0", "method": "notifications/message"});
    peers.server_sends(note.clone()).await;
    assert_eq!(peers.client_receives().await, note);
    for id in 0..4 {
        assert_eq!(peers.server_receives().await["id"], id);
    }
}

#[tokio::test]
async fn call_after_the_server_ended_is_reported_as_not_sent() {
    let mut peers = Peers::start(Settings::new("test"), QUEUE).await;
    peers
        .client_sends(call(1, &json!({"idempotencyKey": "k"})))
        .await;
    // The server ends while it is asked for its tools: its input is still open, and nobody reads
    // it.
    assert_eq!(peers.server_receives().await["method"], "tools/list");
    let (gone, _) = mpsc::channel(1);
    drop(std::mem::replace(&mut peers.server, gone));
    let said = peers.client_receives().await;
    let meta = &said["result"]["_meta"];
    assert_eq!(meta["semel/code"], "idempotency_not_sent", "{said}");
    assert!(peers.server_receives.try_recv().is_err(), "it was sent");
}

#[tokio::test]
async fn empty_key_does_not_reach_the_server() {
    let mut peers = Peers::start(Settings::new("test"), QUEUE).await;
    for empty in [json!(""), json!(null)] {
        peers
            .client_sends(call(1, &json!({"to": "a", "idempotencyKey": empty})))
            .await;
        let mut received = peers.server_receives().await;
        if received["method"] == "tools/list" {
            let tools = json!([{"name": "pay", "inputSchema": {"additionalProperties": false}}]);
            peers
                .server_sends(json!({"id": received["id"], "result": {"tools": tools}}))
                .await;
            received = peers.server_receives().await;
        }
        assert_eq!(
            received["params"]["arguments"],
            json!({"to": "a"}),
            "{received}"
        );
        peers.server_sends(json!({"id": 1, "result": {}})).await;
        assert_eq!(peers.client_receives().await["result"], json!({}));
    }
}

#[tokio::test]
async fn failed_list_is_not_requested_for_every_call() {
    let mut peers = Peers::start(Settings::new("test"), QUEUE).await;
    let mut lists = 0;
    for id in 1..=3 {
        let key = format!("k-{id}");
        peers
            .client_sends(call(id, &json!({"idempotencyKey": key})))
            .await;
        loop {
            let received = peers.server_receives().await;
            if received["method"] == "tools/call" {
                break;
            }
            lists += 1;
            let error = json!({"code": -32603, "message": "no"});
            peers
                .server_sends(json!({"id": received["id"], "error": error}))
                .await;
        }
        peers.server_sends(json!({"id": id, "result": {}})).await;
        assert_eq!(peers.client_receives().await["id"], id);
    }
    assert_eq!(lists, 1);
}

#[tokio::test]
async fn observe_mode_refuses_nothing() {
    let mut settings = observing();
    settings.tools.push(ToolRule {
        name: "pay".to_owned(),
        key: Some(KeyRule::Required),
        ..ToolRule::default()
    });
    let mut peers = Peers::start(settings, QUEUE).await;
    let bad = json!({"idempotencyKey": "no key at all"});
    let batch = json!([call(7, &json!({"idempotencyKey": "k"}))]);
    for message in [call(1, &json!({})), call(2, &bad), batch] {
        peers.client_sends(message.clone()).await;
        let mut received = peers.server_receives().await;
        if received["method"] == "tools/list" {
            peers
                .server_sends(json!({"id": received["id"], "result": {"tools": []}}))
                .await;
            received = peers.server_receives().await;
        }
        assert_eq!(received, message);
    }
}

#[tokio::test]
async fn observe_mode_has_no_call_limit() {
    let mut settings = observing();
    settings.call_limit = Duration::from_millis(50);
    let mut peers = Peers::start(settings, QUEUE).await;
    peers
        .client_sends(call(1, &json!({"idempotencyKey": "k"})))
        .await;
    let list = peers.server_receives().await;
    peers
        .server_sends(json!({"id": list["id"], "result": {"tools": []}}))
        .await;
    assert_eq!(peers.server_receives().await["method"], "tools/call");
    // The limit has passed. In enforce mode the call would be in doubt.
    let silence = tokio::time::timeout(Duration::from_millis(300), peers.client_receives.recv());
    assert!(silence.await.is_err(), "something was said");
    let error = json!({"id": 1, "error": {"code": -32603, "message": "oh"}});
    peers.server_sends(error.clone()).await;
    assert_eq!(peers.client_receives().await, error);
}
