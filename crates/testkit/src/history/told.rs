//! What a store said, in the words of a history.

use std::time::Duration;

use semel_core::{Claimed, Grant, Identity, Record, State};

use super::event::{Ending, Reply, Stand, answer_mark, checkpoint_mark};

/// In microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The answer to a claim of `asked`.
pub(crate) fn claimed(asked: &Identity, answer: &Claimed) -> Reply {
    match answer {
        Claimed::Won(Grant {
            identity,
            fence,
            token,
            attempt,
            checkpoint,
            ..
        }) => Reply::Won {
            fence: fence.0,
            token: token.0,
            attempt: *attempt,
            own: identity == asked,
            checkpoint: checkpoint_mark(checkpoint),
        },
        Claimed::Busy(_) => Reply::Busy,
        Claimed::Replay(replay) if replay.state == State::Failed => {
            Reply::Replay(Ending::Failed(answer_mark(&replay.answer)))
        }
        Claimed::Replay(replay) => Reply::Replay(Ending::Completed(answer_mark(&replay.answer))),
        Claimed::Mismatch => Reply::Mismatch,
        Claimed::InDoubt(doubt) => Reply::InDoubt {
            fence: doubt.fence.0,
        },
    }
}

/// Where a record stands.
pub(crate) fn stand(record: &Record) -> Stand {
    let mark = record.answer.as_deref().map_or(0, answer_mark);
    let ending = match record.state {
        State::Running => None,
        State::Completed => Some(Ending::Completed(mark)),
        State::Failed => Some(Ending::Failed(mark)),
        State::InDoubt => Some(Ending::InDoubt),
        State::Released => Some(Ending::Released),
    };
    Stand {
        fence: record.fence.0,
        ending,
    }
}
