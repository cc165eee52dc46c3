//! Writes the reply to a call. A model reads only the text of a result, so the text says everything
//! that the model must know.

mod held;
mod replay;

use semel::core::Code;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel::core::engine::{Problem, Ran, Response};
use semel::core::{Key, State};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) use self::held::{HeldAgainst, held, held_unknown};
use self::replay::replay;
use crate::call::Call;
use crate::members::Members;
use crate::message;
use crate::outcome::{HttpReply, Outcome};
use crate::settings::Settings;
use crate::tools::STATUS_TOOL;

/// The reply to a caller.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A JSON-RPC message.
    Message(Bytes),
    /// The HTTP response of the server, passed through.
    Http(Arc<HttpReply>),
    /// No reply: the caller has cancelled the call.
    Silence,
    /// No reply: the server cannot be reached, and the caller sees the same as without a gateway.
    NoServer,
}

/// Members of `_meta` that describe a call.
const CODE: &str = "semel/code";
const RETRYABLE: &str = "semel/retryable";
pub(crate) const IN_META_KEY: &str = "semel/idempotencyKey";

/// Turns the engine's response into a reply.
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
        Response::Problem(problem) => return write_problem(call, key, &problem),
    };
    match outcome {
        Outcome::Answered(message) if is_in_doubt && !is_cancellation(&message) => {
            in_doubt(call, key, &describe_error(&message))
        }
        Outcome::Answered(message) => Reply::Message(message),
        Outcome::Http(_) if is_in_doubt => {
            in_doubt(call, key, "The server failed while it was called. ")
        }
        Outcome::Http(reply) => Reply::Http(reply),
        Outcome::Cancelled => Reply::Silence,
        Outcome::NotSent(CANCELLED) => Reply::Silence,
        Outcome::NotSent(GONE) => {
            write_error(call, &ErrorResult::terminal(Code::NotSent, GONE.to_owned()))
        }
        // In observe mode the caller sees what it would see without the gateway (P39).
        Outcome::NotSent(_) | Outcome::Lost | Outcome::TimedOut if !enforces => Reply::NoServer,
        Outcome::NotSent(why) => write_error(
            call,
            &ErrorResult::retryable(
                Code::NotSent,
                format!("This call did nothing: {why}. {RETRY_ADVICE}"),
            ),
        ),
        Outcome::TimedOut => in_doubt(call, key, "The server gave no answer in time. "),
        Outcome::Lost if is_in_doubt => in_doubt(
            call,
            key,
            "The connection to the server ended before it answered. ",
        ),
        Outcome::Lost => {
            let text = "The connection to the server ended before it answered. Call again with the \
                        same arguments and the same idempotencyKey: this tool may run again.";
            write_error(call, &ErrorResult::retryable(Code::Lost, text.to_owned()))
        }
        Outcome::Recorded(replayed) => replay(settings, call, &replayed),
        Outcome::Problem(problem) => write_problem(call, key, &problem),
    }
}

/// Instructions to a model for a call that did nothing. An earlier call with the same key may have
/// acted, so the text speaks of this call only.
const RETRY_ADVICE: &str = "Call again with the same arguments and, if you gave one, the same \
                            idempotencyKey: with a new one it could act twice.";

/// The error code by which a server confirms that it cancelled a request. The caller expects to see
/// this confirmation.
const CANCELLATION_CODE: i64 = -32800;

fn is_cancellation(message: &[u8]) -> bool {
    let error = Members::parse(message).and_then(|message| message.object("error"));
    error.and_then(|error| error.read("code")) == Some(CANCELLATION_CODE)
}

/// Quotes the server's error message, shortened to 500 characters.
fn describe_error(message: &[u8]) -> String {
    let error = Members::parse(message).and_then(|message| message.object("error"));
    let text = error.and_then(|error| error.read::<String>("message"));
    let text: String = text.unwrap_or_default().chars().take(500).collect();
    format!("The server answered with an error ({text}). ")
}

/// The reason of a call that its caller cancelled before it was sent. It gets no reply.
pub(crate) const CANCELLED: &str = "its caller cancelled it";

/// The reply to a call that repeats an earlier one which has no record any more.
pub(crate) const GONE: &str = "Nothing was done: the earlier call is not on record any more. Check \
    whether its effect is there. If it isn't, call again with \"newCall\": true.";

/// An error that the gateway reports as the result of a call.
struct ErrorResult {
    code: Code,
    is_retryable: bool,
    text: String,
    key: Option<String>,
}

impl ErrorResult {
    const fn retryable(code: Code, text: String) -> Self {
        Self {
            code,
            is_retryable: true,
            text,
            key: None,
        }
    }

    const fn terminal(code: Code, text: String) -> Self {
        Self {
            code,
            is_retryable: false,
            text,
            key: None,
        }
    }
}

/// Writes the error as a tool result, because models do not see protocol errors. A caller that
/// asked for a task gets a protocol error instead.
fn write_error(call: &Call, error: &ErrorResult) -> Reply {
    if call.is_task() {
        return Reply::Message(message::error(&call.id, -32603, &error.text));
    }
    let mut meta = json!({CODE: error.code.as_str(), RETRYABLE: error.is_retryable});
    if let Some(key) = &error.key {
        meta[IN_META_KEY] = json!(key);
    }
    let result = json!({
        "content": [{"type": "text", "text": error.text}],
        "isError": true,
        "_meta": meta,
    });
    Reply::Message(own_result(call, result))
}

/// Writes a result of the gateway itself as a message.
pub(crate) fn own_result(call: &Call, mut result: Value) -> Bytes {
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
        "{why}It is NOT KNOWN whether this call of `{tool}` took effect. Do not call it again, \
         neither with a new key nor with other arguments: it might act twice. To learn more, call \
         `{status}` with {{\"tool\": {tool:?}, \"idempotencyKey\": {key:?}}}; or check whether the \
         effect is there, or tell the user. A person can settle it (`semel keys resolve`).",
        tool = call.tool,
        status = STATUS_TOOL,
        key = key.as_str(),
    );
    let doubt = ErrorResult {
        code: Code::InDoubt,
        is_retryable: false,
        text,
        key: Some(key.as_str().to_owned()),
    };
    write_error(call, &doubt)
}

pub(crate) fn write_problem(call: &Call, key: &Key, problem: &Problem) -> Reply {
    let text = match problem {
        Problem::InDoubt(_) => return in_doubt(call, key, ""),
        Problem::Mismatch => {
            "Nothing was done: this idempotencyKey was used before, with other arguments. \
             Use a new one for a new action."
                .to_owned()
        }
        Problem::Held => {
            "Nothing was done: this call resembles an earlier one, which is not on record any \
             more. Call again with the same arguments."
                .to_owned()
        }
        Problem::Busy { retry_after, .. } => format!(
            "The same call is still running. Call again in {} with the same arguments and the \
             same idempotencyKey for its result; it does not act twice.",
            seconds(*retry_after)
        ),
        Problem::Unreadable { .. } => format!(
            "It is NOT KNOWN whether an earlier call of `{}` with this idempotencyKey took effect: \
             its record can't be read. This call did nothing. Do not call it again, neither with a \
             new key nor with other arguments: it might act twice. Check whether the effect is \
             there, or tell the user.",
            call.tool
        ),
        Problem::Erased { .. } => "This idempotencyKey was used before, and the result was erased \
             since. This call did nothing. Do not call it again with a new key: it might act twice."
            .to_owned(),
        Problem::AnswerExpired => {
            "This idempotencyKey was used before, and the result is not kept \
             any more. This call did nothing. Do not call it again with a new key: it might act \
             twice."
                .to_owned()
        }
        Problem::BodyUnavailable { retry_after, .. } => format!(
            "This call was answered before and does not run again, but its result is unavailable \
             at the moment. Call again in {} with the same arguments and the same idempotencyKey \
             for it; a new key would act twice.",
            seconds(*retry_after)
        ),
        Problem::Unavailable { .. } | Problem::Late => {
            let why = "the store of idempotency keys gave no answer";
            format!("This call did nothing: {why}. {RETRY_ADVICE}")
        }
        other => format!("{other}."),
    };
    let is_retryable = problem.is_retryable();
    let problem = ErrorResult {
        code: problem.code(),
        is_retryable,
        text,
        key: None,
    };
    write_error(call, &problem)
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_millis().div_ceil(1000).max(1))
}

/// The code for a call without a usable key.
pub(crate) const NO_KEY: Code = Code::KeyRequired;
/// The code for a call whose namespace is invalid.
pub(crate) const REFUSED: Code = Code::Refused;

pub(crate) fn refused(call: &Call, code: Code, why: &dyn std::fmt::Display) -> Reply {
    write_error(
        call,
        &ErrorResult::terminal(code, format!("Nothing was done: {why}.")),
    )
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
    fn doubt_text_names_the_status_tool_and_the_key() {
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
    fn unreadable_record_is_reported_as_not_known() {
        let source = semel::core::RecordError::UnknownVersion(2).into();
        let problem = Problem::Unreadable { source };
        let key = Key::parse("k-1").unwrap();
        let said = value(write_problem(
            &call(&json!({"name": "pay"})),
            &key,
            &problem,
        ));
        let text = said["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("NOT KNOWN") && text.contains("Do not call it again"),
            "{text}"
        );
        let told = &said["result"]["_meta"];
        assert_eq!(told["semel/code"], "idempotency_record_unreadable");
    }

    #[test]
    fn missing_body_is_reported_as_answered_before() {
        let source = StoreError::new(
            StoreErrorKind::Body,
            Certainty::Definite,
            "a bucket is away",
        );
        let problem = Problem::from_store_error(Some(source), Duration::from_secs(1));
        let key = Key::parse("k-1").unwrap();
        let said = value(write_problem(
            &call(&json!({"name": "pay"})),
            &key,
            &problem,
        ));
        let text = said["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("answered before"), "{text}");
        assert!(!text.contains("Nothing was done"), "{text}");
        let told = &said["result"]["_meta"];
        assert_eq!(told["semel/code"], "idempotency_body_unavailable");
        assert_eq!(told["semel/retryable"], true);
    }

    /// An earlier call with the same key may have acted.
    #[test]
    fn call_that_did_nothing_keeps_its_key() {
        let source = StoreError::new(
            StoreErrorKind::Unavailable,
            Certainty::Definite,
            "no answer",
        );
        let away = Problem::from_store_error(Some(source), Duration::from_secs(1));
        let key = Key::parse("k-1").unwrap();
        let call = call(&json!({"name": "pay"}));
        let settings = Settings::new("test");
        let not_sent = Response::Unprotected(Outcome::NotSent("the server has ended"));
        for reply in [
            write_problem(&call, &key, &away),
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
    fn task_gets_an_error_and_modern_call_a_result_type() {
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
