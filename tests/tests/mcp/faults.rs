//! What goes wrong: servers that take too long, that die, clients that leave, gateways that are
//! told to end.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::time::Duration;

use semel_testkit::private::free_port;
use semel_testkit::proxy::Proxy;
use serde_json::json;

use crate::support::{Place, Sdk, in_doubt, until_one_doubt_is_left};
use crate::talk::{Talk, code, is_replay};

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

/// A derived key is good for a window. An answer that comes after it ends the doubt all the same,
/// and is kept.
#[tokio::test]
async fn an_answer_later_than_the_window_of_a_derived_key_still_ends_the_doubt() {
    let place = Place::new();
    let flags = ["--derive", "act*", "--window", "2s", "--lease", "1s"];
    let flags = [&flags[..], &["--call-limit", "1s"]].concat();
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let until = place.folder.join("until");
    let call = json!({"what": "very late", "until": until});
    let result = talk.call("act_then_wait", &call).await;
    assert_eq!(code(&result), "idempotency_in_doubt", "{result}");
    let key = result["_meta"]["semel/idempotencyKey"].as_str();
    let key = key.expect("a key").to_owned();
    // The record of the window goes; the doubt stays.
    until_one_doubt_is_left(&place).await;
    std::fs::write(&until, "").expect("a folder of our own");
    becomes(&mut talk, "act_then_wait", &key, "completed").await;
    // With the key that the model was told, and without one.
    let with_key = json!({"what": "very late", "until": until, "idempotencyKey": key});
    for call in [&with_key, &call] {
        let again = talk.call("act_then_wait", call).await;
        assert!(is_replay(&again), "{again}");
        assert_eq!(again["structuredContent"]["line"], 1, "{again}");
    }
    assert_eq!(
        (place.acts("act very late"), in_doubt(&place).len()),
        (1, 0)
    );
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
    let until = place.folder.join("until");
    let arguments = json!({"what": "drained", "until": until, "idempotencyKey": "k-drain"});
    let call = json!({"name": "act_then_wait", "arguments": arguments});
    let id = talk.send("tools/call", &call).await;
    becomes(&mut talk, "act_then_wait", "k-drain", "running").await;
    let process = talk
        .process
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    kill_process(process.expect("it runs"), Signal::TERM).expect("it is ours");
    assert_eq!(talk.status("act_then_wait", "k-drain").await, "running");
    std::fs::write(until, "").expect("a folder of our own");
    let answer = talk.answer(id).await;
    assert_eq!(answer["result"]["structuredContent"]["line"], 1, "{answer}");
    assert!(talk.process.wait().await.expect("it ends").success());
    assert_eq!((place.acts("act drained"), in_doubt(&place).len()), (1, 0));
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

/// The answer of a server behind HTTP comes in a stream of events, and the connection breaks in the
/// middle of it: it is taken up again after the last event that came, so nothing is told twice,
/// nothing is lost, and nothing is in doubt.
#[tokio::test]
async fn a_stream_that_breaks_off_is_taken_up_again() {
    let place = Place::new();
    let port = free_port();
    let mut words = place.server(Sdk::TypeScript);
    words.extend([port.to_string(), "events".to_owned()]);
    let _server = place.listens(&words, port).await;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let proxy = Proxy::to(address, semel::tokio_env().clock).await;
    let proxy = proxy.expect("a proxy");
    let upstream = format!("http://{}/mcp", proxy.address());
    let command = place.gateway(&["--upstream", &upstream], &[]);
    let mut talk = Talk::start(&place, &command).await;
    let arguments = json!({"what": "news", "seconds": 0.5, "idempotencyKey": "k-news"});
    let meta = json!({"progressToken": 7});
    let call = json!({"name": "slowly", "arguments": arguments, "_meta": meta});
    let id = talk.send("tools/call", &call).await;
    let (mut steps, mut before) = (Vec::new(), 0);
    let answer = loop {
        let message = talk.hear().await.expect("an answer before the end");
        if message["id"] == id {
            break message;
        }
        if message["method"] == "notifications/progress" {
            if steps.is_empty() {
                before = proxy.connections();
                proxy.cut_all();
            }
            steps.push(message["params"]["progress"].as_u64().expect("a number"));
        }
    };
    assert_eq!(steps, [1, 2, 3], "each once, in order");
    assert_eq!(answer["result"]["content"][0]["text"], "news", "{answer}");
    assert!(proxy.connections() > before, "it was taken up again");
    assert_eq!(talk.status("slowly", "k-news").await, "completed");
    assert_eq!((place.acts("slowly news"), in_doubt(&place).len()), (1, 0));
    talk.leave().await;
}

/// Each session over HTTP has a process, so that one caller must not take all of them.
#[tokio::test]
async fn a_caller_that_opens_too_many_sessions_leaves_room_for_others() {
    let place = Place::new();
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "little", "version": "1"},
    }});
    let server = format!("while read -r line; do echo '{answer}'; done");
    let server = ["sh", "-c", &server].map(str::to_owned);
    let (_gateway, url) = place.http_gateway(&[], &server).await;
    let client = json!({"name": "greedy", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello});
    let open = async |credential: &str| {
        let request = reqwest::Client::new().post(&url).json(&hello);
        let request = request.header("accept", "application/json, text/event-stream");
        let response = request.bearer_auth(credential).send().await;
        response.expect("an answer").status().as_u16()
    };
    for _ in 0..25 {
        assert_eq!(open("greedy").await, 200);
    }
    assert_eq!(open("greedy").await, 429);
    assert_eq!(open("modest").await, 200);
}
