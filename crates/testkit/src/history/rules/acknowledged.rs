//! I2: after an acknowledged settlement, every claim sees it.

use super::super::event::{CallRecord, CallReply, CallRequest, KeyEnding, KeyStanding};
use super::super::view::{Endings, View, Win, is_before};
use super::super::violation::Violation;

/// An answer that was acknowledged is there for whoever asks afterwards, until the record is
/// deleted or expires.
pub(super) fn acknowledged_answers_are_given(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let leases = view.leases();
    let answers = view
        .ends()
        .filter(|end| end.ending.is_answer() && end.call.reply == CallReply::Done);
    for end in answers {
        let Some(lease) = leases.iter().find(|win| win.fence == end.fence) else {
            continue;
        };
        let stale = view.calls.iter().find(|call| {
            is_before(end.call, call)
                && ignores_the_answer(call, lease)
                && !view.may_be_deleted(end.call, call)
                && !view.may_be_expired(lease, call)
        });
        if let Some(call) = stale {
            let sentence = "an answer had been acknowledged, and was not told".to_owned();
            found.push(view.violation("I2", sentence, &[end.call, call]));
        }
    }
}

/// Whether the reply is one of a record without an answer.
fn ignores_the_answer(call: &CallRecord, lease: &Win<'_>) -> bool {
    let has_its_payload =
        matches!(call.ask, CallRequest::Claim { payload, .. } if payload == lease.payload);
    match call.reply {
        CallReply::Busy | CallReply::Overtaken | CallReply::InDoubt { .. } => true,
        CallReply::Mismatch => has_its_payload,
        CallReply::Seen(Some(KeyStanding { ending, .. })) => {
            matches!(
                ending,
                None | Some(KeyEnding::InDoubt | KeyEnding::Released)
            )
        }
        _ => false,
    }
}
