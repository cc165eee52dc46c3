//! I3: a caller without the lease changes nothing.

use super::super::event::{CallRecord, CallReply, CallRequest};
use super::super::view::{Endings, View, Win, is_before, may_have_happened};
use super::super::violation::Violation;

/// A renewal, settlement or resolution that was accepted: the call, its fence and its token.
fn accepted<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v CallRecord, u64, Option<u128>)> {
    view.calls
        .iter()
        .filter_map(|call| match (&call.ask, &call.reply) {
            (CallRequest::Renew { fence, token, .. }, CallReply::Held) => {
                Some((*call, *fence, Some(*token)))
            }
            (CallRequest::Settle { fence, token, .. }, CallReply::Done) => {
                Some((*call, *fence, Some(*token)))
            }
            (CallRequest::Resolve { fence, .. }, CallReply::Done) => Some((*call, *fence, None)),
            _ => None,
        })
}

/// Once a later lease was given, the earlier one is worth nothing.
pub(super) fn stale_calls_are_lost(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    for (call, fence, _) in accepted(view) {
        let later = view
            .wins
            .iter()
            .find(|win| win.fence > fence && is_before(win.call, call));
        if let Some(later) = later {
            let sentence = format!("fence {fence} was heard after {} was given", later.fence);
            found.push(view.violation("I3", sentence, &[later.call, call]));
        }
    }
}

/// Nobody is heard who was never given the lease.
pub(super) fn strangers_are_lost(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    for (call, fence, token) in accepted(view) {
        let Some(token) = token else { continue };
        let won = view
            .wins
            .iter()
            .any(|win| win.fence == fence && win.token == token);
        let may_have_won = view.calls.iter().any(|claim| match claim.ask {
            CallRequest::Claim { token: of, .. } => {
                let untold = !matches!(claim.reply, CallReply::Won { .. });
                of == token && untold && may_have_happened(claim) && claim.start < call.start
            }
            _ => false,
        });
        if !won && !may_have_won {
            let sentence = format!("somebody was heard who never had fence {fence}");
            found.push(view.violation("I3", sentence, &[call]));
        }
    }
}

/// Once a lease is settled, there is nothing left to renew.
pub(super) fn settled_leases_are_lost(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let renewals = accepted(view).filter(|(call, ..)| call.reply == CallReply::Held);
    for (call, fence, _) in renewals {
        let mut ends = view
            .ends()
            .filter(|end| end.fence == fence && end.call.reply == CallReply::Done);
        if let Some(end) = ends.find(|end| is_before(end.call, call)) {
            let sentence = format!("fence {fence} was renewed after it was settled");
            found.push(view.violation("I3", sentence, &[end.call, call]));
        }
    }
}

/// Once a key was found absent, no lease from before is heard. Where clocks run apart, a record
/// that was found expired may have been there still, and be there again when the store's clock is
/// set back: only a deletion is for good then.
pub(super) fn deleted_leases_are_lost(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let is_gone = |win: &Win<'_>, call: &CallRecord| match call.reply {
        CallReply::Deleted(_) => true,
        CallReply::Seen(None) => view.slack == 0 || !view.may_be_expired(win, call),
        _ => false,
    };
    for (call, fence, _) in accepted(view) {
        let Some(win) = view.wins.iter().rfind(|win| win.fence == fence) else {
            continue;
        };
        let gone = view.calls.iter().find(|other| {
            is_gone(win, other) && is_before(win.call, other) && is_before(other, call)
        });
        if let Some(gone) = gone {
            let sentence = format!("fence {fence} was heard after its record was gone");
            found.push(view.violation("I3", sentence, &[win.call, gone, call]));
        }
    }
}
