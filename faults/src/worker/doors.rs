//! Counts the operations of callers and operators by door.

use std::collections::BTreeMap;

use semel_testkit::history::callers::CallerOutcome;
use semel_testkit::history::{CallRequest, Read};

/// Larger than any store keeps inside of the record.
pub(crate) const LARGE_BYTES: usize = 48 * 1024;
/// One key in this many has a large response.
const LARGE_EVERY: u64 = 64;

/// Whether the response to this payload is large.
pub(crate) const fn is_large(payload: u64) -> bool {
    (payload / 2) % LARGE_EVERY == 9
}

/// The number of checked operations by door.
pub(crate) type Doors = BTreeMap<&'static str, u64>;

/// Counts the operations of a history.
pub(crate) fn count(all: &Read) -> Doors {
    let mut doors = Doors::new();
    let mut add = |door, times: usize| {
        if times > 0 {
            *doors.entry(door).or_default() += times as u64;
        }
    };
    add("library", all.reports.len());
    let is_answer = |what| matches!(what, CallerOutcome::Answer(_));
    let large = all.reports.iter().filter(|told| is_large(told.payload));
    add(
        "large-answer",
        large.filter(|told| is_answer(told.what)).count(),
    );
    let by_ask = |is: fn(&CallRequest) -> bool, by_operator: bool| {
        let calls = all.history.calls.iter();
        let calls = calls.filter(move |call| !by_operator || call.is_operators());
        calls.filter(move |call| is(&call.ask)).count()
    };
    let is_checkpoint = |ask: &CallRequest| {
        matches!(
            ask,
            CallRequest::Renew {
                checkpoint: Some(_),
                ..
            }
        )
    };
    add("checkpoint", by_ask(is_checkpoint, false));
    add(
        "operator-delete",
        by_ask(|ask| *ask == CallRequest::Delete, true),
    );
    add(
        "operator-unlock",
        by_ask(|ask| matches!(ask, CallRequest::Settle { .. }), true),
    );
    add(
        "operator-resolve",
        by_ask(|ask| matches!(ask, CallRequest::Resolve { .. }), true),
    );
    doors
}
