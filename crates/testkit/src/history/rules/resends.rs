//! I6: a repeated call gets the same answer, unless the record has moved on.

use super::super::event::{CallReply, CallRequest};
use super::super::view::{Endings, View, is_before};
use super::super::violation::Violation;

/// A claim that won and is sent again doesn't find itself in its own way.
pub(super) fn resent_claims_win_again(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    for call in view
        .calls
        .iter()
        .filter(|call| call.reply == CallReply::Busy)
    {
        let CallRequest::Claim { token, .. } = call.ask else {
            continue;
        };
        let mut own = view.wins.iter().filter(|win| win.token == token);
        let won = own.rfind(|win| is_before(win.call, call));
        let Some(won) = won.filter(|won| !view.may_be_anothers(token, won.call, call)) else {
            continue;
        };
        let sentence = "the owner's claim, sent again, found the key busy".to_owned();
        found.push(view.violation("I6", sentence, &[won.call, call]));
    }
}

/// A settlement or resolution that was done and is sent again is done.
pub(super) fn resent_endings_are_done_again(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let ends: Vec<_> = view.ends().collect();
    let refused = |reply: &CallReply| matches!(reply, CallReply::Lost | CallReply::NotInDoubt);
    for again in ends.iter().filter(|end| refused(&end.call.reply)) {
        let first = ends.iter().find(|first| {
            let same = (first.fence, first.token, first.ending)
                == (again.fence, again.token, again.ending);
            same && first.call.reply == CallReply::Done && is_before(first.call, again.call)
        });
        let Some(first) = first else { continue };
        let Some(win) = view.wins.iter().find(|win| win.fence == first.fence) else {
            continue;
        };
        // A release frees the key to everybody, its last owner included.
        let moved_on = view.may_be_claimed(first.call, again.call)
            || view.may_be_deleted(first.call, again.call)
            || view.may_be_expired(win, again.call)
            || ends
                .iter()
                .any(|other| other.fence == first.fence && other.ending != first.ending);
        if !moved_on {
            let sentence = "what was done, sent again, was refused".to_owned();
            found.push(view.violation("I6", sentence, &[first.call, again.call]));
        }
    }
}
