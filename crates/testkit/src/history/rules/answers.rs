//! I2, I3, I7, I8: which answers are given, and to whom.

use super::super::event::{CallRecord, CallReply, CallRequest, KeyEnding, KeyStanding};
use super::super::view::{End, Endings, View, is_before, may_have_happened};
use super::super::violation::Violation;

/// An answer that somebody was shown: the call and the answer.
fn shown<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v CallRecord, KeyEnding)> {
    view.calls.iter().filter_map(|call| match call.reply {
        CallReply::Replay(ending) => Some((*call, ending)),
        CallReply::Seen(Some(KeyStanding {
            ending: Some(ending),
            ..
        })) if ending.is_answer() => Some((*call, ending)),
        _ => None,
    })
}

/// The endings that may be where `ending` comes from, as shown by `call`.
fn sources<'h>(view: &View<'h>, call: &CallRecord, ending: KeyEnding) -> Vec<End<'h>> {
    let ends = view.ends().filter(|end| end.ending == ending);
    ends.filter(|end| may_have_happened(end.call) && !is_before(call, end.call))
        .collect()
}

/// I2, I3, I8: every answer shown was once given for this key, and accepted.
pub(super) fn answers_were_given(
    view: &View<'_>,
    endings: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    for (call, ending) in shown(view) {
        if !sources(view, call, ending).is_empty() {
            continue;
        }
        let refused = view.ends().find(|end| end.ending == ending);
        let (invariant, sentence) = match refused {
            Some(_) => ("I3", "an answer was shown that had been refused"),
            None if endings.elsewhere(ending, view.key) => ("I8", "another key's answer was shown"),
            None => ("I2", "an answer was shown that nobody gave"),
        };
        let calls: Vec<_> = refused
            .map(|end| end.call)
            .into_iter()
            .chain([call])
            .collect();
        found.push(view.violation(invariant, sentence.to_owned(), &calls));
    }
}

/// I2: what is shown changes only when the key has had a new life in between.
pub(super) fn answers_stay(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let shown: Vec<_> = shown(view).collect();
    for pair in shown.windows(2) {
        let [(first, one), (second, other)] = pair else {
            continue;
        };
        if one == other {
            continue;
        }
        let new_life = view.may_be_claimed(first, second);
        let fences = |call, ending| -> Vec<u64> {
            sources(view, call, ending)
                .iter()
                .map(|end| end.fence)
                .collect()
        };
        let (before, after) = (fences(first, *one), fences(second, *other));
        let went_back = match (before.iter().min(), after.iter().max()) {
            (Some(before), Some(after)) => after <= before && is_before(first, second),
            _ => false,
        };
        if !new_life || went_back {
            let sentence = "an answer changed without a new run".to_owned();
            found.push(view.violation("I2", sentence, &[first, second]));
        }
    }
}

/// I2: of all the ways to end a lease, one is accepted. A doubt may still become an answer.
pub(super) fn leases_end_once(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let done: Vec<_> = view
        .ends()
        .filter(|end| end.call.reply == CallReply::Done)
        .collect();
    for (index, first) in done.iter().enumerate() {
        let others = done[index + 1..]
            .iter()
            .filter(|end| end.fence == first.fence);
        for second in others.filter(|second| second.ending != first.ending) {
            let doubted = first.ending == KeyEnding::InDoubt || second.ending == KeyEnding::InDoubt;
            // By start; a doubt that was sent after an answer had been accepted is one too many.
            let late = second.ending == KeyEnding::InDoubt && is_before(first.call, second.call);
            if !doubted || late {
                let sentence = format!("fence {} was ended in two ways", first.fence);
                found.push(view.violation("I2", sentence, &[first.call, second.call]));
            }
        }
    }
}

/// I7: an answer is for whoever asks with its payload, and a mismatch needs another payload.
pub(super) fn payloads_match(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    for call in &view.calls {
        let CallRequest::Claim { payload, .. } = call.ask else {
            continue;
        };
        match call.reply {
            CallReply::Replay(ending) => {
                let sources = sources(view, call, ending);
                let payload_of = |end: &End<'_>| {
                    view.wins
                        .iter()
                        .find(|win| win.fence == end.fence)
                        .map(|win| win.payload)
                };
                let known: Vec<_> = sources.iter().map(payload_of).collect();
                let other = |of: &Option<u64>| of.is_some_and(|of| of != payload);
                if !known.is_empty() && known.iter().all(other) {
                    let sentence = "another payload was given the answer".to_owned();
                    let calls: Vec<_> = sources.iter().map(|end| end.call).chain([*call]).collect();
                    found.push(view.violation("I7", sentence, &calls));
                }
            }
            CallReply::Mismatch => {
                let other = view.calls.iter().any(|other| match other.ask {
                    CallRequest::Claim { payload: of, .. } => {
                        of != payload && may_have_happened(other) && !is_before(call, other)
                    }
                    _ => false,
                });
                if !other {
                    let sentence = "a mismatch was found where all payloads were alike".to_owned();
                    found.push(view.violation("I7", sentence, &[call]));
                }
            }
            _ => {}
        }
    }
}
