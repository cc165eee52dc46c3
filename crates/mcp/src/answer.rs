//! The last step: what the caller is told. A model reads the text of a result and nothing else, so what it must know
//! is in the text.

mod kept;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel::core::engine::{Problem, Ran, Response};
use semel::core::{Key, State};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::kept::replay;
use crate::call::Call;
use crate::members::Members;
use crate::message;
use crate::outcome::{HttpReply, Outcome};
use crate::settings::Settings;
use crate::status;

/// What the caller gets.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A message.
    Message(Bytes),
    /// The answer of the server's HTTP side.
    Http(Arc<HttpReply>),
    /// Nothing: the caller doesn't wait any more.
    Silence,
    /// Nothing: the server is not there, and who calls is to see just that.
    NoServer,
}

/// What is said of a call in `_meta`.
const CODE: &str = "semel/code";
const RETRYABLE: &str = "semel/retryable";
pub(crate) const IN_META_KEY: &str = "semel/idempotencyKey";

/// Writes the engine's response.
pub(crate) fn write(
    settings: &Settings,
    call: &Call,
    key: &Key,
    response: Response<Outcome>,
) -> Reply {
    let enforces = settings.enforces();
    let (outcome, is_in_doubt) = match response {
        Response::Ran(Ran { value, state, .. }) => (value, enforces && state == State::InDoubt),
        Response::Unprotected(value) => (value, false),
        Response::Replayed(replayed) => return replay(settings, call, &replayed),
        Response::Problem(problem) => return problem_of(call, key, &problem),
    };
    match outcome {
        Outcome::Answered(message) if is_in_doubt && !says_cancelled(&message) => {
            in_doubt(call, key, &error_of(&message))
        }
        Outcome::Answered(message) => Reply::Message(message),
        Outcome::Http(_) if is_in_doubt => {
            in_doubt(call, key, "The server failed while it was called. ")
        }
        Outcome::Http(reply) => Reply::Http(reply),
        Outcome::Cancelled => Reply::Silence,
        Outcome::NotSent(CANCELLED) => Reply::Silence,
        // What is only observed is told as it is without us (P39).
        Outcome::NotSent(_) | Outcome::Lost | Outcome::TimedOut if !enforces => Reply::NoServer,
        Outcome::NotSent(why) => told(
            call,
            &Told::again(
                "idempotency_not_sent",
                format!("This call did nothing: {why}. {AGAIN}"),
            ),
        ),
        Outcome::TimedOut => in_doubt(call, key, "The server gave no answer in time. "),
        Outcome::Lost if is_in_doubt => in_doubt(
            call,
            key,
            "The connection to the server ended before it answered. ",
        ),
        Outcome::Lost => {
            let text = "The connection to the server ended before it answered. Call again with the same arguments \
                        and the same idempotencyKey: this tool may run again.";
            told(call, &Told::again("idempotency_lost", text.to_owned()))
        }
        Outcome::Kept(replayed) => replay(settings, call, &replayed),
        Outcome::Problem(problem) => problem_of(call, key, &problem),
    }
}

/// What a model is to do about a call that did nothing. An earlier one with the same key may have acted, so it must not
/// hear that nothing was done at all.
const AGAIN: &str = "Call again with the same arguments and, if you gave one, the same idempotencyKey: with a new one \
                     it could act twice.";

/// How a server says that it has cancelled a request: whoever wanted that expects to hear it.
const SAYS_CANCELLED: i64 = -32800;

fn says_cancelled(message: &[u8]) -> bool {
    let error = Members::parse(message).and_then(|message| message.object("error"));
    error.and_then(|error| error.read("code")) == Some(SAYS_CANCELLED)
}

/// What a server's error says, within bounds.
fn error_of(message: &[u8]) -> String {
    let error = Members::parse(message).and_then(|message| message.object("error"));
    let text = error.and_then(|error| error.read::<String>("message"));
    let text: String = text.unwrap_or_default().chars().take(500).collect();
    format!("The server answered with an error ({text}). ")
}

/// Why a call was not sent that its caller took back: nobody waits for an answer.
pub(crate) const CANCELLED: &str = "its caller cancelled it";

/// A result of ours.
struct Told {
    code: &'static str,
    is_retryable: bool,
    text: String,
    key: Option<String>,
}

impl Told {
    const fn again(code: &'static str, text: String) -> Self {
        Self {
            code,
            is_retryable: true,
            text,
            key: None,
        }
    }

    const fn done(code: &'static str, text: String) -> Self {
        Self {
            code,
            is_retryable: false,
            text,
            key: None,
        }
    }
}

/// Says it in a result, as models don't see errors of the protocol; or in such an error where the caller expects
/// another kind of result.
fn told(call: &Call, told: &Told) -> Reply {
    if call.is_task() {
        return Reply::Message(message::error(&call.id, -32603, &told.text));
    }
    let mut meta = json!({CODE: told.code, RETRYABLE: told.is_retryable});
    if let Some(key) = &told.key {
        meta[IN_META_KEY] = json!(key);
    }
    let result = json!({
        "content": [{"type": "text", "text": told.text}],
        "isError": true,
        "_meta": meta,
    });
    Reply::Message(of_ours(call, result))
}

/// A result of ours, as a message.
pub(crate) fn of_ours(call: &Call, mut result: Value) -> Bytes {
    if call.is_modern() {
        result["resultType"] = json!("complete");
    }
    message::result(&call.id, &raw(&result))
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    let written = serde_json::value::to_raw_value(value);
    written.unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn in_doubt(call: &Call, key: &Key, why: &str) -> Reply {
    let text = format!(
        "{why}It is NOT KNOWN whether this call of `{tool}` took effect. Do not call it again, neither with a new \
         key nor with other arguments: it might act twice. To learn more, call `{status}` with \
         {{\"tool\": {tool:?}, \"idempotencyKey\": {key:?}}}; or look whether the effect is there, or tell the user. \
         A person can settle it (`semel keys resolve`).",
        tool = call.tool,
        status = status::NAME,
        key = key.as_str(),
    );
    let doubt = Told {
        code: "idempotency_in_doubt",
        is_retryable: false,
        text,
        key: Some(key.as_str().to_owned()),
    };
    told(call, &doubt)
}

fn problem_of(call: &Call, key: &Key, problem: &Problem) -> Reply {
    let text = match problem {
        Problem::InDoubt(_) => return in_doubt(call, key, ""),
        Problem::Mismatch => "Nothing was done: this idempotencyKey was used before, with other arguments. Use a new \
                              one for a new action."
            .to_owned(),
        Problem::Busy { retry_after, .. } => format!(
            "The same call is still running. Call again in {} with the same arguments and the same idempotencyKey \
             for its result; it does not act twice.",
            seconds(*retry_after)
        ),
        Problem::Unreadable { .. } => format!(
            "It is NOT KNOWN whether an earlier call of `{}` with this idempotencyKey took effect: the record of it \
             can't be read. This call did nothing. Do not call it again, neither with a new key nor with other \
             arguments: it might act twice. Look whether the effect is there, or tell the user.",
            call.tool
        ),
        Problem::BodyAway { retry_after, .. } => format!(
            "This call was answered before, and is not run again; its result can't be had right now. Call again in {} \
             with the same arguments and the same idempotencyKey for it; a new key would act twice.",
            seconds(*retry_after)
        ),
        Problem::Unavailable { .. } | Problem::Late => {
            format!("This call did nothing: the store of idempotency keys gave no answer. {AGAIN}")
        }
        other => format!("{other}."),
    };
    let is_retryable = problem.is_retryable();
    let problem = Told {
        code: problem.code(),
        is_retryable,
        text,
        key: None,
    };
    told(call, &problem)
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_millis().div_ceil(1000).max(1))
}

/// There is no key that can be used.
pub(crate) const NO_KEY: &str = "idempotency_key_required";
/// There is no place where its key could live.
pub(crate) const REFUSED: &str = "idempotency_refused";

pub(crate) fn refused(call: &Call, code: &'static str, why: &dyn std::fmt::Display) -> Reply {
    told(call, &Told::done(code, format!("Nothing was done: {why}.")))
}

#[cfg(test)]
mod tests {
    use semel::core::{Certainty, StoreError, StoreErrorKind};

    use super::*;
    use crate::message::Message;

    pub(super) fn call(params: &Value) -> Call {
        let text = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
        Call::read(&Message::new(Bytes::from(text.to_string()))).unwrap()
    }

    pub(super) fn value(reply: Reply) -> Value {
        match reply {
            Reply::Message(message) => serde_json::from_slice(&message).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_doubt_tells_the_model_exactly_that_and_what_to_ask() {
        let said = value(in_doubt(
            &call(&json!({"name": "pay"})),
            &Key::parse("k-1").unwrap(),
            "",
        ));
        let text = said["result"]["content"][0]["text"].as_str().unwrap();
        for words in [
            "NOT KNOWN",
            "Do not call it again",
            "semel_status",
            "k-1",
            "pay",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(said["result"]["isError"], true);
        assert_eq!(
            said["result"]["_meta"]["semel/code"],
            "idempotency_in_doubt"
        );
        assert_eq!(said["id"], "c");
        assert!(said["result"].get("resultType").is_none());
    }

    #[test]
    fn of_a_record_that_cannot_be_read_the_model_does_not_hear_that_nothing_was_done() {
        let source = semel::core::RecordError::UnknownVersion(2).into();
        let problem = Problem::Unreadable { source };
        let key = Key::parse("k-1").unwrap();
        let said = value(problem_of(&call(&json!({"name": "pay"})), &key, &problem));
        let text = said["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("NOT KNOWN") && text.contains("Do not call it again"),
            "{text}"
        );
        let told = &said["result"]["_meta"];
        assert_eq!(told["semel/code"], "idempotency_record_unreadable");
    }

    #[test]
    fn of_a_result_that_does_not_come_the_model_hears_that_it_was_answered_before() {
        let source = StoreError::new(
            StoreErrorKind::Body,
            Certainty::Definite,
            "a bucket is away",
        );
        let problem = Problem::of_store(Some(source), Duration::from_secs(1));
        let key = Key::parse("k-1").unwrap();
        let said = value(problem_of(&call(&json!({"name": "pay"})), &key, &problem));
        let text = said["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("answered before"), "{text}");
        assert!(!text.contains("Nothing was done"), "{text}");
        let told = &said["result"]["_meta"];
        assert_eq!(told["semel/code"], "idempotency_body_unavailable");
        assert_eq!(told["semel/retryable"], true);
    }

    /// An earlier call with the same key may have acted.
    #[test]
    fn of_a_call_that_did_nothing_the_model_hears_to_keep_its_key() {
        let source = StoreError::new(
            StoreErrorKind::Unavailable,
            Certainty::Definite,
            "no answer",
        );
        let away = Problem::of_store(Some(source), Duration::from_secs(1));
        let key = Key::parse("k-1").unwrap();
        let call = call(&json!({"name": "pay"}));
        let settings = Settings::new("test");
        let not_sent = Response::Unprotected(Outcome::NotSent("the server has ended"));
        for reply in [
            problem_of(&call, &key, &away),
            write(&settings, &call, &key, not_sent),
        ] {
            let said = value(reply);
            let text = said["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.starts_with("This call did nothing"), "{text}");
            assert!(text.contains("the same idempotencyKey"), "{text}");
            assert_eq!(said["result"]["_meta"][RETRYABLE], true);
        }
    }

    #[test]
    fn where_a_task_is_expected_it_is_an_error_and_where_a_type_is_it_is_there() {
        let key = Key::parse("k-1").unwrap();
        let task = value(in_doubt(
            &call(&json!({"name": "pay", "task": {}})),
            &key,
            "",
        ));
        assert!(
            task["error"]["message"]
                .as_str()
                .unwrap()
                .contains("NOT KNOWN")
        );
        let modern = json!({"name": "pay", "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
        assert_eq!(
            value(in_doubt(&call(&modern), &key, ""))["result"]["resultType"],
            "complete"
        );
    }
}
