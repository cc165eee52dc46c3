//! Calls in other words: held, until the model says what they are.

use std::process::Stdio;

use serde_json::json;

use crate::support::{Place, Sdk};
use crate::talk::{Talk, code, is_replay};

#[tokio::test]
async fn call_in_other_words_is_held_until_the_model_says_what_it_is() {
    let place = Place::new();
    let rules = place.folder.join("mcp.toml");
    std::fs::write(&rules, "[tools.act]\nidentity = [\"/what\"]\n").expect("a folder of our own");
    let flags = ["--config", rules.to_str().expect("a path in UTF-8")];
    let command = place.gateway(&flags, &place.server(Sdk::Python));
    let mut talk = Talk::start(&place, &command).await;
    let listed = talk.ask("tools/list", &json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let has_flag = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name);
        tool.expect("it is listed")["inputSchema"]["properties"]["newCall"]["type"] == "boolean"
    };
    assert!(has_flag("act") && !has_flag("fail"));
    let first = talk.call("act", &json!({"what": "rent"})).await;
    assert_eq!(first["structuredContent"]["line"], 1, "{first}");
    // The same thing with another argument beside it, from a gateway that was restarted.
    assert!(talk.leave().await.success());
    let mut talk = Talk::start(&place, &command).await;
    let held = talk
        .call("act", &json!({"what": "rent", "seconds": 0.01}))
        .await;
    assert_eq!(code(&held), "idempotency_held", "{held}");
    let against = &held["_meta"]["semel/heldAgainst"];
    assert_eq!(
        (&against["state"], &against["differs"]),
        (&json!("completed"), &json!(["/seconds"]))
    );
    assert_eq!(place.acts("act rent"), 1);
    let same = json!({"what": "rent", "seconds": 0.01, "newCall": false});
    let replay = talk.call("act", &same).await;
    assert!(
        is_replay(&replay) && replay["structuredContent"]["line"] == 1,
        "{replay}"
    );
    let new = json!({"what": "rent", "seconds": 0.01, "newCall": true});
    for _ in 0..2 {
        let second = talk.call("act", &new).await;
        assert_eq!(second["structuredContent"]["line"], 2, "{second}");
    }
    assert_eq!(place.acts("act rent"), 2);
    assert!(talk.leave().await.success());
}

/// The suggested rules are settings that the gateway takes.
#[tokio::test]
async fn suggested_rules_can_be_used_as_they_are() {
    let place = Place::new();
    let mut words = vec![
        semel_tests::semel()
            .to_str()
            .expect("a path in UTF-8")
            .to_owned(),
    ];
    words.extend(["mcp", "lint", "--suggest", "--"].map(str::to_owned));
    words.extend(place.server(Sdk::Python));
    let mut lint = place.command(&words);
    let printed = lint.stdout(Stdio::piped()).output().expect("it starts");
    let text = String::from_utf8(printed.stdout).expect("text");
    assert!(
        printed.status.success() && text.contains("[tools.\"act\"]"),
        "{text}"
    );
    assert!(!text.contains("[tools.\"count\"]"), "it only reads: {text}");
    let rules = place.folder.join("mcp.toml");
    std::fs::write(&rules, &text).expect("a folder of our own");
    let flags = ["--config", rules.to_str().expect("a path in UTF-8")];
    let mut talk = Talk::start(&place, &place.gateway(&flags, &place.server(Sdk::Python))).await;
    for _ in 0..2 {
        let result = talk.call("act", &json!({"what": "once"})).await;
        assert_eq!(result["structuredContent"]["line"], 1, "{result}");
    }
    assert_eq!(place.acts("act once"), 1);
    assert!(talk.leave().await.success());
}
