//! Translates the store's replies into the vocabulary of a history.

use std::time::Duration;

use semel_core::{Claimed, Grant, Identity, Record, State, protocol};

use super::event::{CallReply, KeyEnding, KeyStanding, answer_mark, checkpoint_mark};

/// In microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The answer to a claim of `asked`.
pub(crate) fn claimed(asked: &Identity, answer: &Claimed) -> CallReply {
    match answer {
        Claimed::Won(Grant {
            identity,
            fence,
            token,
            attempt,
            checkpoint,
            ..
        }) => CallReply::Won {
            fence: fence.0,
            token: token.0,
            attempt: *attempt,
            own: identity == asked,
            checkpoint: checkpoint_mark(checkpoint),
        },
        overtaken if *overtaken == protocol::overtaken() => CallReply::Overtaken,
        Claimed::Busy(_) => CallReply::Busy,
        Claimed::Replay(replay) if replay.state == State::Failed => {
            CallReply::Replay(KeyEnding::Failed(answer_mark(&replay.answer)))
        }
        Claimed::Replay(replay) => {
            CallReply::Replay(KeyEnding::Completed(answer_mark(&replay.answer)))
        }
        Claimed::Mismatch(_) => CallReply::Mismatch,
        Claimed::InDoubt(doubt) => CallReply::InDoubt {
            fence: doubt.fence.0,
        },
    }
}

/// Where a record stands.
pub(crate) fn stand(record: &Record) -> KeyStanding {
    let mark = record.answer.as_deref().map_or(0, answer_mark);
    let ending = match record.state {
        State::Running => None,
        State::Completed => Some(KeyEnding::Completed(mark)),
        State::Failed => Some(KeyEnding::Failed(mark)),
        State::InDoubt => Some(KeyEnding::InDoubt),
        State::Released => Some(KeyEnding::Released),
    };
    KeyStanding {
        fence: record.fence.0,
        ending,
    }
}
