//! Writes the reply to a call that was held, because it resembles an earlier one.

use std::time::Duration;

use semel::core::{Code, Key, State, Timestamp};
use semel::http::rfc3339;
use serde_json::json;

use super::{CODE, ErrorResult, IN_META_KEY, RETRYABLE, Reply, own_result, seconds, write_error};
use crate::call::Call;
use crate::message;
use crate::tools::{NEW_CALL, STATUS_TOOL};

/// The member of `_meta` that says which call it resembles.
const HELD_AGAINST: &str = "semel/heldAgainst";

/// The earlier call.
pub(crate) struct HeldAgainst<'a> {
    pub(crate) key: &'a Key,
    pub(crate) state: State,
    pub(crate) called_at: Timestamp,
    /// How long ago that was.
    pub(crate) ago: Duration,
    /// Pointers to the arguments that differ; empty if they are not known.
    pub(crate) differs: Vec<String>,
    /// Whether the tool has the flag by which a model answers.
    pub(crate) has_flag: bool,
}

pub(crate) fn held(call: &Call, earlier: &HeldAgainst<'_>) -> Reply {
    let text = text(call, earlier);
    if call.is_task() {
        return Reply::Message(message::error(&call.id, -32603, &text));
    }
    let result = json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "_meta": {
            CODE: Code::Held.as_str(),
            RETRYABLE: false,
            IN_META_KEY: earlier.key.as_str(),
            HELD_AGAINST: {
                "tool": call.tool,
                "calledAt": rfc3339(earlier.called_at),
                "state": earlier.state.as_str(),
                "differs": earlier.differs,
            },
        },
    });
    Reply::Message(own_result(call, result))
}

fn text(call: &Call, earlier: &HeldAgainst<'_>) -> String {
    let (time, ago) = (rfc3339(earlier.called_at), seconds(earlier.ago));
    let became = match earlier.state {
        State::Running => "it is still running",
        State::Completed => "it took effect",
        State::Failed => "it FAILED",
        State::InDoubt => "it is NOT KNOWN whether it took effect",
        State::Released => "it did not take effect",
    };
    let differs = match earlier.differs.as_slice() {
        [] => "some arguments".to_owned(),
        pointers => pointers.join(", "),
    };
    let check = match earlier.state {
        State::InDoubt => format!(
            " First check whether the effect is there: call `{STATUS_TOOL}` with \
             {{\"tool\": {:?}, \"idempotencyKey\": {:?}}}, look, or ask the user.",
            call.tool,
            earlier.key.as_str()
        ),
        _ => String::new(),
    };
    let answer = match earlier.has_flag {
        true => format!(
            "If it is the same action in other words, call again with \"{NEW_CALL}\": false: it \
             does not act again, and you get the earlier result. Only if a second, separate action \
             is meant, call again with \"{NEW_CALL}\": true, or with a new idempotencyKey."
        ),
        false => "If it is the same action in other words, don't call again. Only if a second, \
                  separate action is meant, call again with a new idempotencyKey."
            .to_owned(),
    };
    format!(
        "Nothing was done: this call of `{tool}` resembles one made at {time} ({ago} ago), and \
         {became}. This call differs from it in {differs}.{check} {answer}",
        tool = call.tool,
    )
}

/// The reply if nothing tells whether the earlier call was made by the same caller.
pub(crate) fn held_unknown(call: &Call) -> Reply {
    let text = format!(
        "Nothing was done: this call of `{}` resembles an earlier one, and it is not recorded any \
         more who made that one. Check whether the effect is there, or tell the user. Only if a \
         second, separate action is meant, call again with a new idempotencyKey.",
        call.tool
    );
    write_error(call, &ErrorResult::terminal(Code::Held, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::tests::{call, value};

    fn told(state: State, differs: &[&str]) -> serde_json::Value {
        let key = Key::parse("auto-1").unwrap();
        let earlier = HeldAgainst {
            key: &key,
            state,
            called_at: Timestamp::from_micros(1_790_000_000_000_000),
            ago: Duration::from_secs(42),
            differs: differs.iter().map(|text| (*text).to_owned()).collect(),
            has_flag: true,
        };
        value(held(&call(&json!({"name": "pay"})), &earlier))["result"].clone()
    }

    #[test]
    fn held_call_is_told_what_it_resembles_and_what_to_do() {
        let result = told(State::Completed, &["/note"]);
        let text = result["content"][0]["text"].as_str().unwrap();
        for words in [
            "Nothing was done",
            "`pay`",
            "42 s ago",
            "it took effect",
            "/note",
            "\"newCall\": false",
            "\"newCall\": true",
            "new idempotencyKey",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(result["isError"], true);
        assert_eq!(result["_meta"]["semel/code"], Code::Held.as_str());
        assert_eq!(result["_meta"][HELD_AGAINST]["differs"], json!(["/note"]));
        assert_eq!(result["_meta"][HELD_AGAINST]["state"], "completed");
    }

    #[test]
    fn model_is_not_told_to_use_an_argument_that_is_the_tools_own() {
        let key = Key::parse("auto-1").unwrap();
        let earlier = HeldAgainst {
            key: &key,
            state: State::Completed,
            called_at: Timestamp::from_micros(1_790_000_000_000_000),
            ago: Duration::from_secs(42),
            differs: Vec::new(),
            has_flag: false,
        };
        let text = text(&call(&json!({"name": "pay"})), &earlier);
        assert!(!text.contains(NEW_CALL), "{text}");
        assert!(text.contains("a new idempotencyKey"), "{text}");
    }

    #[test]
    fn held_call_against_a_doubt_says_so() {
        let result = told(State::InDoubt, &[]);
        let text = result["content"][0]["text"].as_str().unwrap();
        for words in ["NOT KNOWN", "some arguments", "semel_status", "auto-1"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
