//! Events of a key: calls, and losses.

use std::collections::HashMap;

use super::super::event::{CallRecord, CallReply, CallRequest};
use super::super::view::until;

/// Something that happens at one moment.
pub(super) enum Event<'h> {
    /// A call, and whether it was answered: only then must it have happened.
    Call {
        call: &'h CallRecord,
        index: usize,
        is_answered: bool,
    },
    /// Writes may be lost.
    Loss { from: u64, to: u64 },
}

impl Event<'_> {
    pub(super) const fn from(&self) -> u64 {
        match self {
            Self::Call { call, .. } => call.start,
            Self::Loss { from, .. } => *from,
        }
    }

    pub(super) fn until(&self) -> u64 {
        match self {
            Self::Call { call, .. } => until(call),
            Self::Loss { to, .. } => *to,
        }
    }

    pub(super) const fn must_happen(&self) -> bool {
        matches!(
            self,
            Self::Call {
                is_answered: true,
                ..
            }
        )
    }
}

/// `None` for a call that surely changed nothing and says nothing.
pub(super) fn event(index: usize, call: &CallRecord) -> Option<Event<'_>> {
    let is_answered = match call.reply {
        CallReply::Failed { definite: true } => return None,
        CallReply::Failed { definite: false } | CallReply::Unanswered => false,
        _ => true,
    };
    Some(Event::Call {
        call,
        index,
        is_answered,
    })
}

/// For each claim without an answer whose token occurs nowhere else: the one before it that asks
/// for the same. They are used up in this order.
pub(super) fn alike(events: &[Event<'_>]) -> Vec<Option<usize>> {
    let mut times: HashMap<u128, usize> = HashMap::new();
    for event in events {
        if let Event::Call { call, .. } = event
            && let Some(token) = token_of(&call.ask)
        {
            *times.entry(token).or_default() += 1;
        }
    }
    let mut last = HashMap::new();
    let mut before = vec![None; events.len()];
    for (number, event) in events.iter().enumerate() {
        if let Event::Call {
            call,
            is_answered: false,
            ..
        } = event
            && let CallRequest::Claim {
                token,
                payload,
                hold,
                lease,
                retention,
                max_attempts,
            } = call.ask
            && times[&token] == 1
        {
            before[number] = last.insert((payload, hold, lease, retention, max_attempts), number);
        }
    }
    before
}

const fn token_of(ask: &CallRequest) -> Option<u128> {
    match ask {
        CallRequest::Claim { token, .. }
        | CallRequest::Renew { token, .. }
        | CallRequest::Settle { token, .. } => Some(*token),
        _ => None,
    }
}
