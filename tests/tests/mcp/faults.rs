//! What goes wrong: servers that take too long, that die, gateways that come and go, and calls that look alike.

use std::time::Duration;

use semel_tests::{semel, semel_command};
use serde_json::{Value, json};

use crate::support::{Place, Sdk, said};
use crate::talk::{Talk, code, is_replay};

/// What an operator sees of the store.
fn in_doubt(place: &Place) -> Vec<Value> {
    let mut command = semel_command(&semel());
    command.args([
        "keys",
        "list",
        "--in-doubt",
        "--json",
        "--store",
        &place.store(),
    ]);
    let listed = said(&mut command);
    let records = listed.as_array().or_else(|| listed["records"].as_array());
    records.unwrap_or_else(|| panic!("{listed}")).clone()
}

/// Asks again and again until the state is the wanted one.
async fn becomes(talk: &mut Talk, tool: &str, key: &str, wanted: &str) {
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..600 {
        pause.tick().await;
        if talk.status(tool, key).await == wanted {
            return;
        }
    }
    panic!("{tool} never is {wanted}");
}

#[tokio::test]
async fn a_server_that_takes_too_long_is_in_doubt_until_its_late_answer_ends_that() {
    let place = Place::new();
    let command = place.gateway(&["--call-limit", "1s"], &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let until = place.folder.join("until");
    let call = json!({"what": "late", "until": until, "idempotencyKey": "k-late"});
    let result = talk.call("act_then_wait", &call).await;
    assert_eq!(
        (code(&result), &result["isError"]),
        ("idempotency_in_doubt", &json!(true)),
        "{result}"
    );
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(
        text.contains("NOT KNOWN") && text.contains("k-late") && text.contains("semel_status"),
        "{text}"
    );
    assert_eq!(talk.status("act_then_wait", "k-late").await, "in_doubt");
    assert_eq!(in_doubt(&place).len(), 1);
    // Called again, it does not act: the server may still be at it.
    let again = talk.call("act_then_wait", &call).await;
    assert_eq!(code(&again), "idempotency_in_doubt");
    std::fs::write(until, "").expect("a folder of our own");
    becomes(&mut talk, "act_then_wait", "k-late", "completed").await;
    let replay = talk.call("act_then_wait", &call).await;
    assert!(is_replay(&replay), "{replay}");
    assert_eq!((place.acts("act late"), in_doubt(&place).len()), (1, 0));
    assert!(talk.leave().await.success());
}

#[tokio::test]
async fn a_server_that_dies_leaves_a_doubt_and_no_second_act() {
    let place = Place::new();
    let command = place.gateway(&[], &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "dying", "idempotencyKey": "k-die"});
    let result = talk.call("act_then_die", &call).await;
    assert_eq!(code(&result), "idempotency_in_doubt", "{result}");
    assert!(
        talk.hear().await.is_none(),
        "the client sees that the server has gone"
    );
    assert!(!talk.leave().await.success());
    let mut talk = Talk::start(&place, &command).await;
    let again = talk.call("act_then_die", &call).await;
    assert_eq!(code(&again), "idempotency_in_doubt");
    assert_eq!((place.acts("act dying"), in_doubt(&place).len()), (1, 1));
    talk.leave().await;
}

#[tokio::test]
async fn a_client_that_leaves_cuts_no_call_in_half() {
    let place = Place::new();
    let command = place.gateway(&[], &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "left", "seconds": 1, "idempotencyKey": "k-left"});
    talk.ask("ping", &json!({})).await;
    talk.send("tools/call", &json!({"name": "act", "arguments": call}))
        .await;
    assert!(talk.leave().await.success());
    assert_eq!((place.acts("act left"), in_doubt(&place).len()), (1, 0));
    let mut talk = Talk::start(&place, &command).await;
    assert!(is_replay(&talk.call("act", &call).await));
    assert_eq!(place.acts("act left"), 1);
    talk.leave().await;
}

#[tokio::test]
async fn told_to_end_a_gateway_sees_its_calls_through() {
    use rustix::process::{Pid, Signal, kill_process};
    let place = Place::new();
    let command = place.gateway(&[], &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "drained", "seconds": 1, "idempotencyKey": "k-drain"});
    let id = talk
        .send("tools/call", &json!({"name": "act", "arguments": call}))
        .await;
    becomes(&mut talk, "act", "k-drain", "running").await;
    let process = talk
        .process
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    kill_process(process.expect("it runs"), Signal::TERM).expect("it is ours");
    let answer = talk.answer(id).await;
    assert_eq!(answer["result"]["structuredContent"]["line"], 1, "{answer}");
    assert!(talk.process.wait().await.expect("it ends").success());
    assert_eq!((place.acts("act drained"), in_doubt(&place).len()), (1, 0));
}

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
    let mut pause = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..600 {
        pause.tick().await;
        if in_doubt(&place).len() == 1 {
            break;
        }
    }
    assert_eq!(in_doubt(&place).len(), 1);
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

/// Two callers with tokens of their own never see each other's answers.
#[tokio::test]
async fn callers_with_other_tokens_never_meet() {
    let place = Place::new();
    let (_server, upstream) = place.http_server(Sdk::Python).await;
    let (_gateway, url) = place.http_gateway(&["--upstream", &upstream], &[]).await;
    let meta = json!({"idempotencyKey": "k-whose"});
    let call = json!({"name": "act", "arguments": {"what": "whose"}, "_meta": meta});
    for token in ["alice", "bob"] {
        // A client on HTTP: a second gateway, which lets everything pass.
        let way = format!("Authorization: Bearer {token}");
        let flags = ["--observe", "--header", &way, "--upstream", &url];
        let mut talk = Talk::start(&place, &place.gateway(&flags, &[])).await;
        for expected in [false, true] {
            let answer = talk.ask("tools/call", &call).await;
            assert_eq!(is_replay(&answer["result"]), expected, "{token}: {answer}");
        }
    }
    assert_eq!(place.acts("act whose"), 2);
}

/// A server behind HTTP that is killed while it works on a call.
#[tokio::test]
async fn a_server_behind_http_that_is_killed_leaves_a_doubt() {
    let place = Place::new();
    let (mut server, upstream) = place.http_server(Sdk::Python).await;
    let (_gateway, url) = place.http_gateway(&["--upstream", &upstream], &[]).await;
    let meta = json!({"idempotencyKey": "k-gone"});
    let arguments = json!({"what": "gone", "until": place.folder.join("never")});
    let call = json!({"name": "act_then_wait", "arguments": arguments, "_meta": meta});
    let mut talk = Talk::start(
        &place,
        &place.gateway(&["--observe", "--upstream", &url], &[]),
    )
    .await;
    let id = talk.send("tools/call", &call).await;
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    while place.acts("act gone") == 0 {
        pause.tick().await;
    }
    server.kill();
    let answer = talk.answer(id).await;
    assert_eq!(code(&answer["result"]), "idempotency_in_doubt", "{answer}");
    let again = talk.ask("tools/call", &call).await;
    assert_eq!(code(&again["result"]), "idempotency_in_doubt", "{again}");
    assert_eq!(place.acts("act gone"), 1);
    // What never reached the server is no doubt.
    let meta = json!({"idempotencyKey": "k-never"});
    let call = json!({"name": "act", "arguments": {"what": "never"}, "_meta": meta});
    let never = talk.ask("tools/call", &call).await;
    assert_eq!(code(&never["result"]), "idempotency_not_sent", "{never}");
    talk.leave().await;
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
