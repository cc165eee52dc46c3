//! Doubts that resolve themselves: another tool tells whether the call took effect.

use serde_json::{Value, json};

use crate::support::{Place, Sdk, in_doubt};
use crate::talk::{Talk, code, is_replay};

/// A rule file: `find` tells whether `tool` acted.
pub(crate) fn rule(tool: &str, after: &str) -> String {
    format!(
        "[tools.{tool}.verify]\n\
         tool = \"find\"\n\
         arguments = {{ what = \"/what\" }}\n\
         done = {{ at = \"/times\", equals = 1 }}\n\
         not_done = {{ at = \"/times\", equals = 0 }}\n\
         after = \"{after}\"\n\
         attempts = 12\n\
         pause = \"50ms\"\n"
    )
}

fn rules(place: &Place, tool: &str, after: &str) -> String {
    let file = place.folder.join("mcp.toml");
    std::fs::write(&file, rule(tool, after)).expect("a folder of our own");
    file.to_str().expect("a path in UTF-8").to_owned()
}

fn is_verified(result: &Value) -> bool {
    result["_meta"]["semel/verifiedBy"] == "find"
}

#[tokio::test]
async fn effect_of_a_server_that_died_is_found_by_the_next_call() {
    let place = Place::new();
    let file = rules(&place, "act_then_die", "0s");
    let audit = place.folder.join("audit.jsonl");
    let flags = ["--config", &file, "--audit", audit.to_str().expect("UTF-8")];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let call = json!({"what": "dying", "idempotencyKey": "k-die"});
    let result = talk.call("act_then_die", &call).await;
    assert_eq!(code(&result), "idempotency_in_doubt", "{result}");
    talk.leave().await;
    assert_eq!(in_doubt(&place).len(), 1);
    let mut talk = Talk::start(&place, &command).await;
    for is_again in [false, true] {
        let result = talk.call("act_then_die", &call).await;
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(
            is_verified(&result) && text.contains("took effect"),
            "{result}"
        );
        assert!(is_replay(&result) || !is_again, "{result}");
    }
    assert_eq!((place.acts("act dying"), in_doubt(&place).len()), (1, 0));
    assert!(talk.leave().await.success());
    let entries = std::fs::read_to_string(audit).expect("the audit trail");
    let entries = entries
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let found: Vec<Value> = entries
        .filter(|entry: &Value| entry.to_string().contains("idempotency.verified"))
        .collect();
    // The server that died could not be asked.
    let results: Vec<&Value> = found
        .iter()
        .map(|entry| &entry["detail"]["found"])
        .collect();
    assert_eq!(results, ["unknown", "done"], "{found:?}");
    assert!(found[1]["detail"]["evidence"].is_string(), "{found:?}");
    assert!(!format!("{found:?}").contains("dying"), "{found:?}");
}

#[tokio::test]
async fn call_that_did_nothing_runs_again() {
    let place = Place::new();
    let file = rules(&place, "die_first", "0s");
    let flags = ["--config", &file, "--derive", "*"];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let died = place.folder.join("died");
    let call = json!({"what": "second", "died": died});
    let mut talk = Talk::start(&place, &command).await;
    let result = talk.call("die_first", &call).await;
    assert_eq!(code(&result), "idempotency_in_doubt", "{result}");
    talk.leave().await;
    let mut talk = Talk::start(&place, &command).await;
    let result = talk.call("die_first", &call).await;
    assert_eq!(result["structuredContent"]["line"], 1, "{result}");
    assert!(is_replay(&talk.call("die_first", &call).await));
    assert_eq!((place.acts("act second"), in_doubt(&place).len()), (1, 0));
    assert!(talk.leave().await.success());
}

/// The call gets its answer at once: the server lives, and can be asked.
#[tokio::test]
async fn effect_of_a_call_without_an_answer_is_found_at_once() {
    for transport in ["stdio", "http"] {
        let place = Place::new();
        let file = rules(&place, "act_then_wait", "0s");
        let flags = ["--config", &file, "--call-limit", "1s"];
        let (_server, command) = match transport {
            "stdio" => (None, place.gateway(&flags, &place.server(Sdk::Python))),
            _ => {
                let (server, url) = place.http_server(Sdk::Python).await;
                let flags = [&flags[..], &["--upstream", &url]].concat();
                (Some(server), place.gateway(&flags, &[]))
            }
        };
        let mut talk = Talk::start(&place, &command).await;
        let until = place.folder.join("until");
        let call = json!({"what": "late", "until": until, "idempotencyKey": "k-late"});
        let result = talk.call("act_then_wait", &call).await;
        assert!(is_verified(&result), "{transport}: {result}");
        assert_eq!(talk.status("act_then_wait", "k-late").await, "completed");
        assert_eq!((place.acts("act late"), in_doubt(&place).len()), (1, 0));
        std::fs::write(until, "").expect("a folder of our own");
        talk.leave().await;
    }
}

/// Between HTTP and HTTP, the lookup goes out with the caller's own headers.
#[tokio::test]
async fn proxy_looks_up_what_became_of_a_call() {
    let place = Place::new();
    let file = rules(&place, "act_then_wait", "0s");
    let (_server, url) = place.http_server(Sdk::Python).await;
    let flags = ["--config", &file, "--call-limit", "1s", "--upstream", &url];
    let (_gateway, gateway) = place.http_gateway(&flags, &[]).await;
    let outer = place.folder.join("outer.db");
    let mut command = place.gateway(&["--upstream", &gateway], &[]);
    for word in &mut command {
        if word.starts_with("sqlite://") {
            *word = format!("sqlite://{}", outer.display());
        }
    }
    let mut talk = Talk::start(&place, &command).await;
    let until = place.folder.join("until");
    let call = json!({"what": "late", "until": until, "idempotencyKey": "k-late"});
    let result = talk.call("act_then_wait", &call).await;
    assert!(is_verified(&result), "{result}");
    assert_eq!((place.acts("act late"), in_doubt(&place).len()), (1, 0));
    std::fs::write(until, "").expect("a folder of our own");
    talk.leave().await;
}
