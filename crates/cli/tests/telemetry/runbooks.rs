//! The steps of runbooks, taken on the real program: each finds what the runbook says.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use super::support::{Rig, get, pause, post, send};

const SETTINGS: &str = r#"
log.format = "json"
principals.from = "header"
principals.header = "x-client"
[[routes]]
path = "/orders"
[[routes]]
path = "/dated"
fingerprint.exclude = ["/sent_at"]
[[routes]]
path = "/slow"
wait = "200ms"
"#;

/// The runbook, which names each of these steps.
fn follow(name: &str, steps: &[&str]) {
    let file = format!("docs/runbooks/{name}.md");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(&file);
    let text = std::fs::read_to_string(path).expect("a runbook");
    for step in steps {
        assert!(text.contains(step), "{file} doesn't say {step}");
    }
}

async fn post_as(rig: &Rig, client: &str, path: &str, key: &str, body: &str) -> u16 {
    let request = Request::post(format!("http://{}{path}", rig.address))
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .header("x-client", client);
    let body = Full::<Bytes>::from(body.to_owned());
    send(request.body(body).expect("a request")).await.0
}

/// The log lines of an event, once there are so many.
async fn lines(rig: &Rig, event: &str, count: usize) -> Vec<Value> {
    loop {
        let log = rig.log.lock().clone();
        let lines = log
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok());
        let found: Vec<Value> = lines
            .filter(|line: &Value| line["event"] == event)
            .collect();
        if found.len() >= count {
            return found;
        }
        pause().await;
    }
}

/// The values of a member of all lines.
fn values(lines: &[Value], member: &str) -> BTreeSet<String> {
    let text = |line: &Value| line[member].as_str().unwrap_or_default().to_owned();
    lines.iter().map(text).collect()
}

async fn ask(rig: &Rig, path: &str) -> Value {
    let (status, text) = get(&format!("http://{}{path}", rig.admin)).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// The first digits of a record's id, which end the label of its key.
fn hash_of(label: &str) -> &str {
    label.rsplit("...").next().unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs servers"]
async fn the_client_behind_a_mismatch_storm_is_found() {
    follow(
        "SemelMismatchStorm",
        &[
            "`idempotency.conflict`",
            "`GET /admin/v1/live`",
            "`hot_keys`",
            "`GET /admin/v1/records/{id}/history`",
            "`semel_mismatch_new_keys_total`",
            "`fingerprint.exclude`",
        ],
    );
    let rig = Rig::start(SETTINGS).await;
    for client in ["shop-1", "till-7"] {
        assert_eq!(
            post_as(&rig, client, "/orders", "counter", "[0]").await,
            200
        );
    }
    for number in 1..=6 {
        let body = format!("[{number}]");
        let status = post_as(&rig, "till-7", "/orders", "counter", &body).await;
        assert_eq!(status, 422);
    }
    // One actor and one key: a client that uses it again.
    let conflicts = lines(&rig, "idempotency.conflict", 6).await;
    assert_eq!(values(&conflicts, "actor"), ["till-7".to_owned()].into());
    let keys = values(&conflicts, "key");
    assert_eq!(keys.len(), 1, "{keys:?}");
    let label = keys.first().expect("a key");
    let live = ask(&rig, "/admin/v1/live").await;
    let hot = &live["hot_keys"][0];
    let id = hot["id"].as_str().expect("an id");
    assert!(id.starts_with(hash_of(label)), "{hot} is not {label}");
    assert_eq!(
        (&hot["scope"], &hot["requests"]),
        (&json!("/orders"), &json!(7))
    );
    let history = ask(&rig, &format!("/admin/v1/records/{id}/history")).await;
    let entries = history["entries"].as_array().expect("entries").clone();
    let made = entries
        .iter()
        .find(|entry| entry["type"] == "idempotency.key.created");
    assert_eq!(made.expect("an entry")["actor"], "till-7", "{history}");
    // The same payload under a new key: keys are reused by mistake.
    assert_eq!(
        post_as(&rig, "till-7", "/orders", "counter-2", "[6]").await,
        200
    );
    rig.metrics().await.is(
        "semel_mismatch_new_keys_total",
        &[r#"scope="/orders""#],
        1.0,
    );
    // A member that changes with each retry is left out.
    for sent_at in [1, 2] {
        let body = format!(r#"{{"order": 7, "sent_at": {sent_at}}}"#);
        assert_eq!(post_as(&rig, "till-7", "/dated", "dated", &body).await, 200);
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn the_hot_key_of_wait_timeouts_is_found_and_unlocked() {
    follow(
        "SemelWaitTimeouts",
        &[
            "`idempotency.lock.timeout`",
            "`GET /admin/v1/live`",
            "`hot_keys`",
            "`GET /admin/v1/records?state=running`",
            "unlock",
        ],
    );
    let rig = Rig::start(SETTINGS).await;
    let (address, key) = (rig.address, Some("order-0001"));
    let hanging = tokio::spawn(post(address, "/slow", key, "{}"));
    while rig.metrics().await.get("semel_running", &[]) != Some(1.0) {
        pause().await;
    }
    for _ in 0..3 {
        assert_eq!(rig.post("/slow", key, "{}").await.0, 409);
    }
    let timeouts = lines(&rig, "idempotency.lock.timeout", 3).await;
    let keys = values(&timeouts, "key");
    assert_eq!(keys.len(), 1, "{keys:?}");
    let label = keys.first().expect("a key");
    let live = ask(&rig, "/admin/v1/live").await;
    let hot = &live["hot_keys"][0];
    assert!(hot["requests"].as_u64() >= Some(3), "{live}");
    let running = ask(&rig, "/admin/v1/records?state=running").await;
    let record = &running["records"][0];
    let id = record["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with(hash_of(label)), "{record} is not {label}");
    assert_eq!(hot["id"], record["id"], "{live}");
    let unlock = json!({
        "fence": record["fence"], "actor": "jo", "reason": "its owner is gone", "to": "released",
    });
    let url = format!("http://{}/admin/v1/records/{id}/unlock", rig.admin);
    let request = Request::post(url).header("content-type", "application/json");
    let body = Full::<Bytes>::from(unlock.to_string());
    let (status, text) = send(request.body(body).expect("a request")).await;
    assert_eq!(status, 200, "{text}");
    // The next caller runs.
    let next = tokio::spawn(post(address, "/slow", key, "{}"));
    while !next.is_finished() {
        rig.gate.notify_one();
        pause().await;
    }
    assert_eq!(next.await.unwrap().0, 200);
    hanging.await.unwrap();
}
