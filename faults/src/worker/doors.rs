//! The doors that callers and operators of a worker come through, and what went through each.

use std::collections::BTreeMap;

use semel_testkit::history::callers::Outcome;
use semel_testkit::history::{Ask, Read};

/// More than any store keeps beside the record's own fields.
pub(crate) const LARGE_BYTES: usize = 48 * 1024;
/// Every so-manieth key has an answer of that size.
const LARGE_EVERY: u64 = 64;

/// Whether the answer to this payload is a large one.
pub(crate) const fn is_large(payload: u64) -> bool {
    (payload / 2) % LARGE_EVERY == 9
}

/// How many checked operations came through each door.
pub(crate) type Doors = BTreeMap<&'static str, u64>;

/// Counts what a history shows.
pub(crate) fn count(all: &Read) -> Doors {
    let mut doors = Doors::new();
    let mut add = |door, times: usize| {
        if times > 0 {
            *doors.entry(door).or_default() += times as u64;
        }
    };
    add("library", all.told.len());
    let is_answer = |what| matches!(what, Outcome::Answer(_));
    let large = all.told.iter().filter(|told| is_large(told.payload));
    add(
        "large-answer",
        large.filter(|told| is_answer(told.what)).count(),
    );
    let by_ask = |is: fn(&Ask) -> bool, by_operator: bool| {
        let calls = all.history.calls.iter();
        let calls = calls.filter(move |call| !by_operator || call.is_operators());
        calls.filter(move |call| is(&call.ask)).count()
    };
    let is_checkpoint = |ask: &Ask| {
        matches!(
            ask,
            Ask::Renew {
                checkpoint: Some(_),
                ..
            }
        )
    };
    add("checkpoint", by_ask(is_checkpoint, false));
    add("operator-delete", by_ask(|ask| *ask == Ask::Delete, true));
    add(
        "operator-unlock",
        by_ask(|ask| matches!(ask, Ask::Settle { .. }), true),
    );
    add(
        "operator-resolve",
        by_ask(|ask| matches!(ask, Ask::Resolve { .. }), true),
    );
    doors
}
