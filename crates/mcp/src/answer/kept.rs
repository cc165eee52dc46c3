//! What a record tells of a call that was made before: its result, or what is known where there is none to show.

use semel::core::engine::Replayed;
use semel::core::{Body, Replay, State};
use semel::http::rfc3339;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Reply, Told, raw, told};
use crate::call::Call;
use crate::members::Members;
use crate::message;
use crate::outcome::HEAD;
use crate::settings::Settings;

/// What a key's answer is called in `_meta`.
const REPLAYED: &str = "semel/replayed";
const ORIGINAL_TIME: &str = "semel/originalTime";
const REPLAY_NUMBER: &str = "semel/replayNumber";

/// The longest text of an operator's that a model is shown, in bytes.
const MOST_SHOWN: usize = 4096;

pub(super) fn replay(settings: &Settings, call: &Call, replayed: &Replayed) -> Reply {
    let mut meta = Members::default();
    meta.set(REPLAYED, &true);
    meta.set(ORIGINAL_TIME, &rfc3339(replayed.replay.requested_at));
    if let Some(number) = replayed.number {
        meta.set(REPLAY_NUMBER, &number);
    }
    kept(call, &replayed.replay, meta, settings.say_replayed)
}

/// A kept answer, with `more` in its metadata.
fn kept(call: &Call, replay: &Replay, more: Members, say: bool) -> Reply {
    // No server's: an operator said what became of the call.
    if &*replay.answer.head != HEAD {
        return told(call, &by_operator(replay));
    }
    let body = match &replay.answer.body {
        Body::Kept(body) => body,
        Body::Omitted { bytes } | Body::Elsewhere { bytes, .. } => {
            return told(call, &too_large(replay.state, *bytes));
        }
    };
    let Some(mut result) = Members::parse(body) else {
        // No object, so there is no place to add anything: as the server gave it.
        let result = serde_json::from_slice::<Box<RawValue>>(body);
        let result = result.unwrap_or_else(|_| RawValue::NULL.to_owned());
        return Reply::Message(message::result(&call.id, &result));
    };
    let mut meta = result.object("_meta").unwrap_or_default();
    meta.merge(more);
    result.set("_meta", &meta);
    if say {
        let mut content: Vec<Box<RawValue>> = result.read("content").unwrap_or_default();
        let line = json!({"type": "text", "text": "(This is the result of an earlier call with the same key. The tool did not act again.)"});
        content.extend(serde_json::value::to_raw_value(&line).ok());
        result.set("content", &content);
    }
    Reply::Message(message::result(&call.id, &raw(&result)))
}

fn too_large(state: State, bytes: u64) -> Told {
    let text = match state {
        State::Failed => format!(
            "This call was made before, and the tool said that it FAILED. What it said ({bytes} bytes) was too large \
             to be kept, so it can't be shown again. It is not run again under this key; look what became of it before \
             you try with a new one."
        ),
        _ => format!(
            "This call was made before and took effect. Its result ({bytes} bytes) was too large to be kept, so it \
             can't be shown again. Don't call again for it."
        ),
    };
    Told::done("idempotency_not_kept", text)
}

fn by_operator(replay: &Replay) -> Told {
    let (code, said) = match replay.state {
        State::Failed => (
            "idempotency_failed",
            "An operator recorded that this call FAILED for good: it did NOT take effect. It is not run again under this \
             key; a new attempt needs a new idempotencyKey.",
        ),
        _ => (
            "idempotency_no_result",
            "An operator recorded that this call took effect. Don't call again for it.",
        ),
    };
    let text = match shown(&replay.answer.body) {
        Some(shown) => format!("{said} This was recorded of it: {shown}"),
        None => format!("{said} There is no result to show."),
    };
    Told::done(code, text)
}

/// What an operator wrote down, where a model can read it: text, and not much.
fn shown(body: &Body) -> Option<&str> {
    let Body::Kept(body) = body else { return None };
    let text = std::str::from_utf8(body).ok()?.trim();
    let says = !text.is_empty() && text != "null" && text.len() <= MOST_SHOWN;
    says.then_some(text)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::Value;

    use super::*;
    use crate::answer::tests::{call, value};
    use crate::outcome::tests::replayed;

    fn told_of(state: State, head: &'static [u8], body: Body) -> Value {
        let settings = Settings::new("test");
        let replayed = replayed(state, head, body);
        let said = replay(&settings, &call(&json!({"name": "pay"})), &replayed);
        value(said)["result"].clone()
    }

    fn text_of(result: &Value) -> &str {
        result["content"][0]["text"].as_str().unwrap()
    }

    #[test]
    fn a_replay_says_so_in_metadata_and_on_request_in_text() {
        let body = br#"{"content":[{"type":"text","text":"paid"}],"structuredContent":{"n":1.0},"_meta":{"own":1}}"#;
        let replayed = replayed(State::Completed, HEAD, Body::Kept(Bytes::from_static(body)));
        let mut settings = Settings::new("test");
        let call = call(&json!({"name": "pay"}));
        let said = value(replay(&settings, &call, &replayed));
        let meta = &said["result"]["_meta"];
        assert_eq!(
            (&meta["own"], &meta[REPLAYED]),
            (&json!(1), &json!(true)),
            "{meta}"
        );
        assert_eq!(said["result"]["content"].as_array().unwrap().len(), 1);
        assert_eq!(said["result"]["structuredContent"], json!({"n": 1.0}));
        settings.say_replayed = true;
        let said = value(replay(&settings, &call, &replayed));
        let text = said["result"]["content"][1]["text"].as_str().unwrap();
        assert!(text.contains("did not act again"), "{text}");
    }

    #[test]
    fn what_an_operator_recorded_is_told_as_that_and_never_as_its_opposite() {
        let nothing = || Body::Kept(Bytes::from_static(b"null"));
        let failed = told_of(State::Failed, b"", nothing());
        let text = text_of(&failed);
        assert!(text.contains("did NOT take effect"), "{text}");
        assert!(text.contains("no result to show"), "{text}");
        assert_eq!(failed["_meta"]["semel/code"], "idempotency_failed");
        let done = told_of(State::Completed, b"", nothing());
        let text = text_of(&done);
        assert!(
            text.contains("recorded that this call took effect"),
            "{text}"
        );
        assert_eq!(done["_meta"]["semel/code"], "idempotency_no_result");
        for told in [&failed, &done] {
            assert_eq!(told["isError"], true);
            assert_eq!(told["_meta"]["semel/retryable"], false);
        }
    }

    #[test]
    fn of_what_an_operator_wrote_down_text_is_shown_that_is_not_too_long() {
        let text = |body: Vec<u8>| {
            let told = told_of(State::Failed, b"http", Body::Kept(body.into()));
            text_of(&told).to_owned()
        };
        let refused = text(br#" {"refused":"by the bank"} "#.to_vec());
        assert!(
            refused.ends_with(r#": {"refused":"by the bank"}"#),
            "{refused}"
        );
        for unshown in [Vec::new(), vec![0xff], vec![b'a'; MOST_SHOWN + 1]] {
            let said = text(unshown);
            assert!(said.ends_with("There is no result to show."), "{said}");
        }
    }

    #[test]
    fn a_failure_too_large_to_be_kept_is_not_told_as_done() {
        let body = || Body::Omitted { bytes: 2_000_000 };
        let failed = told_of(State::Failed, HEAD, body());
        let text = text_of(&failed);
        assert!(
            text.contains("FAILED") && !text.contains("took effect"),
            "{text}"
        );
        let done = told_of(State::Completed, HEAD, body());
        assert!(text_of(&done).contains("took effect"), "{done}");
        for told in [failed, done] {
            assert_eq!(told["_meta"]["semel/code"], "idempotency_not_kept");
        }
    }
}
