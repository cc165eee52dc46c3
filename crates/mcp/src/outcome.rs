//! [`Outcome`]: what became of a call that was sent on, and what that means for its record.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use semel::core::engine::{Problem, Replayed, Report, Verdict};
use semel::core::{Answer, Body, State};
use serde_json::value::RawValue;

use crate::members::Members;
use crate::settings::Errors;

/// What the head of an answer of this door says: an answer of another door under the same key isn't ours to give.
pub(crate) const HEAD: &[u8] = b"mcp/1";

/// What became of a call that was to be sent on.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The server answered, with this message.
    Answered(Bytes),
    /// The server's HTTP side answered, and no message came.
    Http(Arc<HttpReply>),
    /// It was never sent.
    NotSent(&'static str),
    /// It was sent, and then the connection ended.
    Lost,
    /// It was sent, and no answer came in time.
    TimedOut,
    /// It was sent, its caller cancelled it, and no answer came.
    Cancelled,
    /// What another of our records tells of it.
    Kept(Box<Replayed>),
    /// The engine has no answer.
    Problem(Arc<Problem>),
}

/// An answer that is no message of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Outcome {
    /// Whether the call ended in a way that leaves nothing open.
    pub(crate) fn is_known(&self, errors: Errors) -> bool {
        !matches!(self.verdict(errors), Verdict::Unknown | Verdict::Retry)
    }

    pub(crate) fn report(self, errors: Errors) -> Report<Self> {
        let verdict = self.verdict(errors);
        Report {
            value: self,
            verdict,
        }
    }

    fn verdict(&self, errors: Errors) -> Verdict {
        match self {
            Self::Answered(message) => answered(message, errors),
            Self::Http(reply) if reply.status.is_client_error() => Verdict::NoEffect,
            Self::Http(_) | Self::Lost | Self::Cancelled => Verdict::Retry,
            Self::NotSent(_) => Verdict::NoEffect,
            // The server may still be at it: a retry that ran beside it would act twice.
            Self::TimedOut => Verdict::Unknown,
            Self::Kept(replayed) => {
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

/// Errors by which a server says that it has not begun: no such method, arguments that don't fit, no message at all.
const NOT_BEGUN: [i64; 4] = [-32700, -32600, -32601, -32602];

fn answered(message: &[u8], errors: Errors) -> Verdict {
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
    let says = Members::of(result).unwrap_or_default();
    // The server wants to be called again, with more: this is no end.
    if says
        .read::<String>("resultType")
        .is_some_and(|is| is != "complete" && is != "task")
    {
        return Verdict::NoEffect;
    }
    let failed = says.read::<bool>("isError").unwrap_or(false);
    match (failed, errors) {
        (false, _) => Verdict::Complete(answer(result)),
        (true, Errors::Keep) => Verdict::Fail(answer(result)),
        (true, Errors::Release) => Verdict::NoEffect,
    }
}

/// A result as a record keeps it.
pub(crate) fn answer(result: &RawValue) -> Answer {
    Answer {
        head: Bytes::from_static(HEAD),
        body: Body::Kept(Bytes::copy_from_slice(result.get().as_bytes())),
    }
}

/// The answer that a late message of the server's carries, where it is one to keep.
pub(crate) fn late(message: &[u8], errors: Errors) -> Option<Verdict> {
    match answered(message, errors) {
        verdict @ (Verdict::Complete(_) | Verdict::Fail(_) | Verdict::NoEffect) => Some(verdict),
        Verdict::Retry | Verdict::Unknown => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use semel::core::{Replay, Timestamp};

    use super::*;

    /// What a record tells.
    pub(crate) fn replayed(state: State, head: &'static [u8], body: Body) -> Replayed {
        let at = Timestamp::from_micros(1_790_000_000_000_000);
        let answer = Answer {
            head: Bytes::from_static(head),
            body,
        };
        let replay = Replay {
            state,
            answer: Arc::new(answer),
            attempt: 1,
            requested_at: at,
            settled_at: at,
            expires_in: Duration::from_secs(60),
        };
        Replayed {
            replay,
            number: None,
        }
    }

    fn of(message: &str, errors: Errors) -> Verdict {
        Outcome::Answered(Bytes::copy_from_slice(message.as_bytes())).verdict(errors)
    }

    #[test]
    fn what_a_server_says_decides_what_is_kept() {
        use Errors::{Keep, Release};
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
    fn what_another_record_tells_stays_what_it_is() {
        for (state, fails) in [(State::Completed, false), (State::Failed, true)] {
            let replayed = replayed(state, b"", Body::Omitted { bytes: 0 });
            let verdict = Outcome::Kept(Box::new(replayed)).verdict(Errors::Release);
            assert_eq!(matches!(verdict, Verdict::Fail(_)), fails);
            assert_eq!(matches!(verdict, Verdict::Complete(_)), !fails);
        }
    }

    /// A gateway of this kind forgot the key when the server took too long, and its retry acted again.
    #[test]
    fn a_timeout_never_frees_the_key() {
        for errors in [Errors::Keep, Errors::Release] {
            assert_eq!(Outcome::TimedOut.verdict(errors), Verdict::Unknown);
        }
    }
}
