//! Replays the recorded result of an earlier call, or explains why there is no result to show.

use semel::core::Code;
use semel::core::engine::Replayed;
use semel::core::{AnswerBody, Replay, State};
use semel::http::rfc3339;
use serde_json::json;
use serde_json::value::RawValue;

use super::{ErrorResult, Reply, raw, write_error};
use crate::call::Call;
use crate::members::Members;
use crate::message;
use crate::outcome::is_own_head;
use crate::settings::Settings;

/// Members of `_meta` that mark a replay.
const REPLAYED: &str = "semel/replayed";
const ORIGINAL_TIME: &str = "semel/originalTime";
const REPLAY_NUMBER: &str = "semel/replayNumber";

/// The longest operator's note that is shown to a model, in bytes.
const MAX_SHOWN_BYTES: usize = 4096;

pub(super) fn replay(settings: &Settings, call: &Call, replayed: &Replayed) -> Reply {
    let mut meta = Members::default();
    meta.set(REPLAYED, &true);
    meta.set(ORIGINAL_TIME, &rfc3339(replayed.replay.requested_at));
    if let Some(number) = replayed.number {
        meta.set(REPLAY_NUMBER, &number);
    }
    write_stored(call, &replayed.replay, meta, settings.say_replayed)
}

/// Writes a stored answer, with `more` added to its metadata.
fn write_stored(call: &Call, replay: &Replay, more: Members, say: bool) -> Reply {
    // Another head means that an operator resolved the call.
    if !is_own_head(&replay.answer.head) {
        return write_error(call, &by_operator(replay));
    }
    let body = match &replay.answer.body {
        AnswerBody::Kept(body) => body,
        AnswerBody::Omitted { bytes } | AnswerBody::External { bytes, .. } => {
            return write_error(call, &too_large(replay.state, *bytes));
        }
    };
    let Some(mut result) = Members::parse(body) else {
        // Metadata can only be added to an object: anything else is passed on unchanged.
        let result = serde_json::from_slice::<Box<RawValue>>(body);
        let result = result.unwrap_or_else(|_| RawValue::NULL.to_owned());
        return Reply::Message(message::result(&call.id, &result));
    };
    let mut meta = result.object("_meta").unwrap_or_default();
    meta.merge(more);
    result.set("_meta", &meta);
    if say {
        let mut content: Vec<Box<RawValue>> = result.read("content").unwrap_or_default();
        let text = "(This is the result of an earlier call with the same key. \
                    The tool did not act again.)";
        let line = json!({"type": "text", "text": text});
        content.extend(serde_json::value::to_raw_value(&line).ok());
        result.set("content", &content);
    }
    Reply::Message(message::result(&call.id, &raw(&result)))
}

fn too_large(state: State, bytes: u64) -> ErrorResult {
    let text = match state {
        State::Failed => format!(
            "This call was made before, and the tool reported that it FAILED. Its report ({bytes} \
             bytes) was too large to store, so it can't be shown again. The call does not run \
             again under this key. Check what became of it before you try with a new one."
        ),
        _ => format!(
            "This call was made before and took effect. Its result ({bytes} bytes) was too large \
             to store, so it can't be shown again. Don't call again for it."
        ),
    };
    ErrorResult::terminal(Code::NotKept, text)
}

fn by_operator(replay: &Replay) -> ErrorResult {
    let (code, said) = match replay.state {
        State::Failed => (
            Code::Failed,
            "An operator recorded that this call FAILED for good: it did NOT take effect. It does \
             not run again under this key; a new attempt needs a new idempotencyKey.",
        ),
        _ => (
            Code::NoResult,
            "An operator recorded that this call took effect. Don't call again for it.",
        ),
    };
    let text = match shown(&replay.answer.body) {
        Some(shown) => format!("{said} This was recorded of it: {shown}"),
        None => format!("{said} There is no result to show."),
    };
    ErrorResult::terminal(code, text)
}

/// An operator's note, if it is text and short enough to show to a model.
fn shown(body: &AnswerBody) -> Option<&str> {
    let AnswerBody::Kept(body) = body else {
        return None;
    };
    let text = std::str::from_utf8(body).ok()?.trim();
    let says = !text.is_empty() && text != "null" && text.len() <= MAX_SHOWN_BYTES;
    says.then_some(text)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::Value;

    use super::*;
    use crate::answer::tests::{call, value};
    use crate::outcome::HEAD;
    use crate::outcome::tests::replayed;

    fn replayed_result(state: State, head: &'static [u8], body: AnswerBody) -> Value {
        let settings = Settings::new("test");
        let replayed = replayed(state, head, body);
        let said = replay(&settings, &call(&json!({"name": "pay"})), &replayed);
        value(said)["result"].clone()
    }

    fn text_of(result: &Value) -> &str {
        result["content"][0]["text"].as_str().unwrap()
    }

    #[test]
    fn replay_is_marked_in_metadata_and_optionally_in_text() {
        let body = br#"{"content":[{"type":"text","text":"paid"}],"structuredContent":{"n":1.0},"_meta":{"own":1}}"#;
        let replayed = replayed(
            State::Completed,
            HEAD,
            AnswerBody::Kept(Bytes::from_static(body)),
        );
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
    fn operator_resolution_is_reported_as_recorded() {
        let nothing = || AnswerBody::Kept(Bytes::from_static(b"null"));
        let failed = replayed_result(State::Failed, b"", nothing());
        let text = text_of(&failed);
        assert!(text.contains("did NOT take effect"), "{text}");
        assert!(text.contains("no result to show"), "{text}");
        assert_eq!(failed["_meta"]["semel/code"], "idempotency_failed");
        let done = replayed_result(State::Completed, b"", nothing());
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
    fn short_text_of_an_operator_is_shown() {
        let text = |body: Vec<u8>| {
            let told = replayed_result(State::Failed, b"http", AnswerBody::Kept(body.into()));
            text_of(&told).to_owned()
        };
        let refused = text(br#" {"refused":"by the bank"} "#.to_vec());
        assert!(
            refused.ends_with(r#": {"refused":"by the bank"}"#),
            "{refused}"
        );
        for unshown in [Vec::new(), vec![0xff], vec![b'a'; MAX_SHOWN_BYTES + 1]] {
            let said = text(unshown);
            assert!(said.ends_with("There is no result to show."), "{said}");
        }
    }

    #[test]
    fn oversized_failure_is_not_reported_as_success() {
        let body = || AnswerBody::Omitted { bytes: 2_000_000 };
        let failed = replayed_result(State::Failed, HEAD, body());
        let text = text_of(&failed);
        assert!(
            text.contains("FAILED") && !text.contains("took effect"),
            "{text}"
        );
        let done = replayed_result(State::Completed, HEAD, body());
        assert!(text_of(&done).contains("took effect"), "{done}");
        for told in [failed, done] {
            assert_eq!(told["_meta"]["semel/code"], "idempotency_not_kept");
        }
    }
}
