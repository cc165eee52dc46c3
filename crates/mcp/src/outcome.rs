//! [`Outcome`]: the outcome of a forwarded call, and the verdict for its record.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use semel::core::engine::{Problem, Replayed, Report, Verdict};
use semel::core::{Answer, AnswerBody, State};
use serde_json::value::RawValue;

use crate::members::Members;
use crate::settings::ErrorRule;

/// The head of stored answers. It tells them from answers that another door stored under the same
/// key.
pub(crate) const HEAD: &[u8] = b"mcp/1";

/// What a record keeps of a call beside its result.
#[derive(Clone, Debug)]
pub(crate) struct AnswerTerms {
    pub(crate) errors: ErrorRule,
    /// The head of the answer.
    pub(crate) head: Bytes,
}

impl AnswerTerms {
    /// `sketch` is what a later call with the same identity is compared with.
    pub(crate) fn new(errors: ErrorRule, sketch: Option<&Bytes>) -> Self {
        let head = sketch.map(|sketch| [HEAD, b"\n", sketch].concat().into());
        Self {
            errors,
            head: head.unwrap_or(Bytes::from_static(HEAD)),
        }
    }
}

/// Whether the gateway stored the answer with this head.
pub(crate) fn is_own_head(head: &[u8]) -> bool {
    head == HEAD || sketch_in_head(head).is_some()
}

/// The sketch in the head of a stored answer.
pub(crate) fn sketch_in_head(head: &[u8]) -> Option<&[u8]> {
    head.strip_prefix(HEAD)?.strip_prefix(b"\n")
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The server answered with this message.
    Answered(Bytes),
    /// The server sent an HTTP response without a message.
    Http(Arc<HttpReply>),
    /// The call was never sent.
    NotSent(&'static str),
    /// The call was sent, and then the connection ended.
    Lost,
    /// The call was sent, and no answer came in time.
    TimedOut,
    /// The call was sent, its caller cancelled it, and no answer came.
    Cancelled,
    /// The guard record holds the answer.
    Recorded(Box<Replayed>),
    /// The engine reported a problem.
    Problem(Arc<Problem>),
}

/// An HTTP response that carries no JSON-RPC message.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Outcome {
    /// Whether the outcome is certain.
    pub(crate) fn is_settled(&self, terms: &AnswerTerms) -> bool {
        !matches!(self.verdict(terms), Verdict::Unknown | Verdict::Retry)
    }

    pub(crate) fn report(self, terms: &AnswerTerms) -> Report<Self> {
        let verdict = self.verdict(terms);
        Report::new(self, verdict)
    }

    fn verdict(&self, terms: &AnswerTerms) -> Verdict {
        match self {
            Self::Answered(message) => verdict_of_message(message, terms),
            Self::Http(reply) if reply.status.is_client_error() => Verdict::NoEffect,
            Self::Http(_) | Self::Lost | Self::Cancelled => Verdict::Retry,
            Self::NotSent(_) => Verdict::NoEffect,
            // The server may still be working: a retry beside it would act twice.
            Self::TimedOut => Verdict::Unknown,
            Self::Recorded(replayed) => {
                let answer = (*replayed.replay.answer).clone();
                match replayed.replay.state {
                    State::Failed => Verdict::Fail(answer),
                    _ => Verdict::Complete(answer),
                }
            }
            Self::Problem(problem) => match &**problem {
                Problem::InDoubt(_) | Problem::Unrecorded { .. } | Problem::LeaseLost { .. } => {
                    Verdict::Unknown
                }
                _ => Verdict::NoEffect,
            },
        }
    }
}

/// Error codes that prove that the server has not begun: parse error, invalid request, unknown
/// method, invalid parameters.
const NOT_BEGUN: [i64; 4] = [-32700, -32600, -32601, -32602];

fn verdict_of_message(message: &[u8], terms: &AnswerTerms) -> Verdict {
    let Some(message) = Members::parse(message) else {
        return Verdict::Retry;
    };
    if let Some(error) = message.object("error") {
        let code = error.read::<i64>("code").unwrap_or_default();
        return if NOT_BEGUN.contains(&code) {
            Verdict::NoEffect
        } else {
            Verdict::Retry
        };
    }
    let Some(result) = message.get("result") else {
        return Verdict::Retry;
    };
    let says = Members::from_raw(result).unwrap_or_default();
    // The server asks for more input and expects another call.
    if says
        .read::<String>("resultType")
        .is_some_and(|is| is != "complete" && is != "task")
    {
        return Verdict::NoEffect;
    }
    let failed = says.read::<bool>("isError").unwrap_or(false);
    match (failed, terms.errors) {
        (false, _) => Verdict::Complete(stored_answer(result, terms)),
        (true, ErrorRule::Keep) => Verdict::Fail(stored_answer(result, terms)),
        (true, ErrorRule::Release) => Verdict::NoEffect,
    }
}

/// The form in which a record stores a result.
fn stored_answer(result: &RawValue, terms: &AnswerTerms) -> Answer {
    Answer {
        head: terms.head.clone(),
        body: AnswerBody::Kept(Bytes::copy_from_slice(result.get().as_bytes())),
    }
}

/// The verdict for a late answer; `None` if the answer leaves the doubt open.
pub(crate) fn late_verdict(message: &[u8], terms: &AnswerTerms) -> Option<Verdict> {
    match verdict_of_message(message, terms) {
        verdict @ (Verdict::Complete(_) | Verdict::Fail(_) | Verdict::NoEffect) => Some(verdict),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use semel::core::{Fence, Replay, Timestamp, Token};

    use super::*;

    /// A replay of a record with this content.
    pub(crate) fn replayed(state: State, head: &'static [u8], body: AnswerBody) -> Replayed {
        let at = Timestamp::from_micros(1_790_000_000_000_000);
        let answer = Answer {
            head: Bytes::from_static(head),
            body,
        };
        let replay = Replay {
            state,
            answer: Arc::new(answer),
            attempt: 1,
            fence: Fence(1),
            token: Token(0),
            requested_at: at,
            settled_at: at,
            expires_in: Duration::from_secs(60),
        };
        Replayed::new(replay, None)
    }

    fn of(message: &str, errors: ErrorRule) -> Verdict {
        let terms = AnswerTerms::new(errors, None);
        Outcome::Answered(Bytes::copy_from_slice(message.as_bytes())).verdict(&terms)
    }

    #[test]
    fn verdict_follows_from_the_servers_answer() {
        use ErrorRule::{Keep, Release};
        let done = r#"{"id":1,"result":{"content":[]}}"#;
        assert!(matches!(of(done, Keep), Verdict::Complete(_)));
        let failed = r#"{"id":1,"result":{"content":[],"isError":true}}"#;
        assert!(matches!(of(failed, Keep), Verdict::Fail(_)));
        assert_eq!(of(failed, Release), Verdict::NoEffect);
        let unknown_tool = r#"{"id":1,"error":{"code":-32602,"message":"Unknown tool"}}"#;
        assert_eq!(of(unknown_tool, Keep), Verdict::NoEffect);
        let internal = r#"{"id":1,"error":{"code":-32603,"message":"oh"}}"#;
        assert_eq!(of(internal, Keep), Verdict::Retry);
        let more = r#"{"id":1,"result":{"resultType":"input_required","requestState":"s"}}"#;
        assert_eq!(of(more, Keep), Verdict::NoEffect);
        let whole = r#"{"id":1,"result":{"resultType":"complete","content":[]}}"#;
        assert!(matches!(of(whole, Keep), Verdict::Complete(_)));
    }

    #[test]
    fn head_of_an_answer_carries_the_sketch() {
        let sketch = Bytes::from_static(b"{}");
        let terms = AnswerTerms::new(ErrorRule::Keep, Some(&sketch));
        assert!(is_own_head(&terms.head) && is_own_head(HEAD));
        assert_eq!(sketch_in_head(&terms.head), Some(&b"{}"[..]));
        assert_eq!(sketch_in_head(HEAD), None);
        assert!(!is_own_head(b"http") && !is_own_head(b"mcp/12"));
    }

    #[test]
    fn recorded_state_is_preserved() {
        for (state, fails) in [(State::Completed, false), (State::Failed, true)] {
            let replayed = replayed(state, b"", AnswerBody::Omitted { bytes: 0 });
            let verdict = Outcome::Recorded(Box::new(replayed))
                .verdict(&AnswerTerms::new(ErrorRule::Release, None));
            assert_eq!(matches!(verdict, Verdict::Fail(_)), fails);
            assert_eq!(matches!(verdict, Verdict::Complete(_)), !fails);
        }
    }

    /// Regression: a timeout used to free the key, and the retry acted again.
    #[test]
    fn timeout_keeps_the_key() {
        for errors in [ErrorRule::Keep, ErrorRule::Release] {
            let terms = AnswerTerms::new(errors, None);
            assert_eq!(Outcome::TimedOut.verdict(&terms), Verdict::Unknown);
        }
    }
}
