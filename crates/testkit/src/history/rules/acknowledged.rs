//! I2: once a settlement is acknowledged, everybody who asks from then on is told of it.

use super::super::check::Violation;
use super::super::event::{Ask, Call, Ending, Reply, Stand};
use super::super::view::{Endings, View, Win, is_before};

/// An answer that was acknowledged is there for whoever asks afterwards, until the record is deleted or expires.
pub(super) fn acknowledged_answers_are_given(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let leases = view.leases();
    let answers = view
        .ends()
        .filter(|end| end.ending.is_answer() && end.call.reply == Reply::Done);
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
fn ignores_the_answer(call: &Call, lease: &Win<'_>) -> bool {
    let has_its_payload =
        matches!(call.ask, Ask::Claim { payload, .. } if payload == lease.payload);
    match call.reply {
        Reply::Busy | Reply::InDoubt { .. } => true,
        Reply::Mismatch => has_its_payload,
        Reply::Seen(Some(Stand { ending, .. })) => {
            matches!(ending, None | Some(Ending::InDoubt | Ending::Released))
        }
        _ => false,
    }
}
