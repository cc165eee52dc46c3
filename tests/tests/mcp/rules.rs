//! Whose call it is, and which calls are the same: keys that are derived, stores, servers and
//! callers.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::path::Path;
use std::time::Duration;

use semel_tests::semel;
use serde_json::{Value, json};

use crate::support::{Place, Sdk, until_one_doubt_is_left, words};
use crate::talk::{Talk, code, is_replay};

#[tokio::test]
async fn without_a_key_the_same_call_is_the_same_for_a_window() {
    let place = Place::new();
    let flags = ["--derive", "act*", "--window", "10s", "--lease", "5s"];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let mut other = Talk::start(&place, &command).await;
    let call = json!({"what": "window"});
    let first = talk.call("act", &call).await;
    assert!(!is_replay(&first), "{first}");
    let second = talk.call("act", &call).await;
    assert!(is_replay(&second), "{second}");
    assert_eq!(first["structuredContent"], second["structuredContent"]);
    assert!(!is_replay(
        &talk.call("act", &json!({"what": "another"})).await
    ));
    // What isn't listed is not protected.
    for _ in 0..2 {
        talk.call("slowly", &call).await;
    }
    assert_eq!(
        (place.acts("act window"), place.acts("slowly window")),
        (1, 2)
    );
    // Another process, the same call: known by its meaning.
    assert!(is_replay(&other.call("act", &call).await));
    // After the window, it is a new one.
    let mut pause = tokio::time::interval(Duration::from_millis(250));
    let mut calls = 0;
    while place.acts("act window") < 2 {
        pause.tick().await;
        talk.call("act", &call).await;
        calls += 1;
        assert!(calls < 400, "the window never ends");
    }
    assert!(calls > 1, "there was no window");
    talk.leave().await;
    other.leave().await;
}

#[tokio::test]
async fn the_same_call_at_once_runs_once_without_a_key_too() {
    let place = Place::new();
    let command = place.gateway(&["--derive", "*"], &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"name": "act", "arguments": {"what": "at once", "seconds": 0.5}});
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(talk.send("tools/call", &call).await);
    }
    let mut lines = Vec::new();
    while lines.len() < ids.len() {
        let message = talk.hear().await.expect("an answer");
        if ids.iter().any(|id| message["id"] == *id) {
            lines.push(message["result"]["structuredContent"]["line"].clone());
        }
    }
    assert!(
        lines.iter().all(|line| *line == lines[0] && line.is_u64()),
        "{lines:?}"
    );
    assert_eq!(place.acts("act at once"), 1);
    talk.leave().await;
}

/// A doubt outlives the window of a derived key: after it, the same call still must not act.
#[tokio::test]
async fn a_doubt_about_a_call_without_a_key_outlives_its_window() {
    let place = Place::new();
    let flags = ["--derive", "act*", "--window", "2s", "--lease", "1s"];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "doubt"});
    let result = talk.call("act_then_die", &call).await;
    let key = result["_meta"]["semel/idempotencyKey"]
        .as_str()
        .expect("a key")
        .to_owned();
    assert_eq!(code(&result), "idempotency_in_doubt");
    let mut talk = Talk::start(&place, &command).await;
    // The record of the window goes; the doubt stays, under a record of its own.
    until_one_doubt_is_left(&place).await;
    let again = talk.call("act_then_die", &call).await;
    assert_eq!(code(&again), "idempotency_in_doubt", "{again}");
    assert_eq!(talk.status("act_then_die", &key).await, "in_doubt");
    assert_eq!(place.acts("act doubt"), 1);
    talk.leave().await;
}

#[tokio::test]
async fn a_failure_of_a_destructive_tool_is_kept_where_the_user_says_so() {
    let place = Place::new();
    let file = place.folder.join("mcp.toml");
    let rules = "say_replayed = true\n[tools.fail]\ncrash = \"hold\"\n[tools.\"slow*\"]\nkey = \"required\"\n";
    std::fs::write(&file, rules).expect("a folder of our own");
    let flags = ["--config", file.to_str().expect("UTF-8")];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "kept", "idempotencyKey": "k-kept"});
    let (first, second) = (
        talk.call("fail", &call).await,
        talk.call("fail", &call).await,
    );
    assert_eq!(
        (&first["isError"], &second["isError"]),
        (&json!(true), &json!(true))
    );
    assert!(!is_replay(&first) && is_replay(&second), "{second}");
    let said = second["content"]
        .as_array()
        .expect("content")
        .last()
        .expect("a line")["text"]
        .clone();
    assert!(
        said.as_str()
            .is_some_and(|said| said.contains("did not act again")),
        "{said}"
    );
    assert_eq!(place.acts("fail kept"), 1);
    let refused = talk.call("slowly", &json!({"what": "no key"})).await;
    assert_eq!(code(&refused), "idempotency_key_required");
    assert_eq!(place.acts("slowly no key"), 0);
    talk.leave().await;
}

/// The same keyspace for every gateway on a store, and none between two servers.
#[tokio::test]
async fn gateways_share_a_redis() {
    let place = Place::new();
    let redis = std::env::var("SEMEL_TEST_REDIS_URL")
        .expect("SEMEL_TEST_REDIS_URL: see `cargo xtask services up redis`");
    let environment = format!(
        "mcp-{}",
        place
            .folder
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name")
    );
    let gateway = |name: &str| {
        let mut command = place.gateway(
            &["--name", name, "--environment", &environment],
            &place.server(Sdk::TypeScript),
        );
        let at = command
            .iter()
            .position(|word| word == "--store")
            .expect("a store");
        command[at + 1].clone_from(&redis);
        command
    };
    let call = json!({"what": "shared", "idempotencyKey": "k-shared"});
    let mut one = Talk::start(&place, &gateway("tools")).await;
    let mut two = Talk::start(&place, &gateway("tools")).await;
    let mut other = Talk::start(&place, &gateway("others")).await;
    assert!(!is_replay(&one.call("act", &call).await));
    assert!(is_replay(&two.call("act", &call).await));
    assert!(!is_replay(&other.call("act", &call).await));
    assert_eq!(place.acts("act shared"), 2);
    one.leave().await;
    two.leave().await;
    other.leave().await;
}

/// The beginner's line: no store named, and records that survive the gateway.
#[tokio::test]
async fn without_a_store_records_are_kept_in_a_file_of_the_users() {
    let place = Place::new();
    let mut command = vec![
        semel().to_str().expect("UTF-8").to_owned(),
        "mcp".to_owned(),
        "--".to_owned(),
    ];
    command.extend(place.server(Sdk::Python));
    let state = place.folder.join("state");
    let env = [("XDG_STATE_HOME", state.to_str().expect("UTF-8"))];
    let call = json!({"what": "first", "idempotencyKey": "k-first"});
    for expected in [false, true] {
        let mut talk = Talk::with(&place, &command, &env).await;
        assert_eq!(is_replay(&talk.call("act", &call).await), expected);
        assert!(talk.leave().await.success());
    }
    assert!(state.join("semel/mcp.db").is_file());
    assert_eq!(place.acts("act first"), 1);
}

/// The same command in another folder may be another project's: it has keys of its own, unless it
/// is given a name.
#[tokio::test]
async fn the_same_command_in_two_folders_is_two_servers() {
    let place = Place::new();
    let call = json!({"what": "folder", "idempotencyKey": "k-folder"});
    for (flags, acts) in [(&[][..], 2), (&["--name", "one"], 3)] {
        for folder in ["a", "b"] {
            let folder = place.folder.join(folder);
            std::fs::create_dir_all(&folder).expect("a folder of our own");
            let mut command = words(&[Path::new("env"), Path::new("-C"), &folder]);
            command.extend(place.gateway(flags, &place.server(Sdk::TypeScript)));
            let mut talk = Talk::start(&place, &command).await;
            talk.call("act", &call).await;
            assert!(talk.leave().await.success());
        }
        assert_eq!(place.acts("act folder"), acts, "{flags:?}");
    }
}

/// Two callers with tokens of their own never see each other's answers: the second to use a key is
/// refused, and a key of its own is its own.
#[tokio::test]
async fn callers_with_other_tokens_never_meet() {
    let place = Place::new();
    let (_server, upstream) = place.http_server(Sdk::Python).await;
    let (_gateway, url) = place.http_gateway(&["--upstream", &upstream], &[]).await;
    let call = |key: &str| {
        let meta = json!({"idempotencyKey": key});
        json!({"name": "act", "arguments": {"what": "whose"}, "_meta": meta})
    };
    for (token, keys) in [
        ("alice", ["k-alice", "k-alice"]),
        ("bob", ["k-alice", "k-bob"]),
    ] {
        // A client on HTTP: a second gateway, which lets everything pass.
        let way = format!("Authorization: Bearer {token}");
        let flags = ["--observe", "--header", &way, "--upstream", &url];
        let mut talk = Talk::start(&place, &place.gateway(&flags, &[])).await;
        let [first, second] = [
            talk.ask("tools/call", &call(keys[0])).await,
            talk.ask("tools/call", &call(keys[1])).await,
        ];
        let is_refused =
            |answer: &Value| answer["result"]["_meta"]["semel/code"] == "idempotency_conflict";
        let is_bob = token == "bob";
        assert_eq!(is_refused(&first), is_bob, "{token}: {first}");
        assert!(!is_replay(&first["result"]) && !is_refused(&second));
        assert_eq!(is_replay(&second["result"]), !is_bob, "{token}: {second}");
    }
    assert_eq!(place.acts("act whose"), 2);
}

#[test]
fn lint_finds_what_acts_without_a_key() {
    let place = Place::new();
    for (sdk, expected) in [(Sdk::Python, "act_then_die"), (Sdk::TypeScript, "act")] {
        let mut words = vec![semel().to_str().expect("UTF-8").to_owned()];
        words.extend(["mcp", "lint", "--json", "--"].map(str::to_owned));
        words.extend(place.server(sdk));
        let output = place
            .command(&words)
            .stdout(std::process::Stdio::piped())
            .output()
            .expect("it runs");
        assert_eq!(
            output.status.code(),
            Some(12),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = |tool: &str, code: &str| {
            let findings = said["findings"].as_array().expect("findings");
            findings
                .iter()
                .any(|of| of["tool"] == tool && of["code"] == code)
        };
        assert!(found(expected, "acts-without-a-key"), "{said}");
        assert!(
            !found("count", "acts-without-a-key") && !found("own_key", "acts-without-a-key"),
            "{said}"
        );
    }
    assert!(place.ledger().is_empty(), "lint calls nothing");
}

#[test]
fn a_process_is_never_open_to_other_machines() {
    let place = Place::new();
    let command = place.gateway(&["--listen", "0.0.0.0:0"], &place.server(Sdk::Python));
    let output = place.command(&command).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    let fix = "fix: --listen-token-file FILE, or --listen 127.0.0.1:PORT";
    assert!(said.contains(fix), "{said}");
}
