//! I1, I5, I12: the owners of a key over time.

use super::super::event::{CallReply, CallRequest, KeyEnding};
use super::super::view::{Endings, View, Win, is_before};
use super::super::violation::Violation;

/// I1: one fence, one token.
pub(super) fn one_owner_per_fence(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    for pair in view.wins.windows(2) {
        let [first, second] = pair else { continue };
        if first.fence == second.fence && first.token != second.token {
            let sentence = format!("two owners were given fence {}", first.fence);
            found.push(view.violation("I1", sentence, &[first.call, second.call]));
        }
    }
}

/// I1: a lease that was asked for after another was given has the larger fence.
pub(super) fn fences_grow(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let mut by_end = view.wins.clone();
    by_end.sort_by_key(|win| win.call.end);
    let mut by_start = view.wins.clone();
    by_start.sort_by_key(|win| win.call.start);
    let (mut ended, mut largest) = (by_end.into_iter().peekable(), None::<Win<'_>>);
    for win in by_start {
        while let Some(earlier) = ended.next_if(|earlier| is_before(earlier.call, win.call)) {
            if largest.is_none_or(|largest| earlier.fence > largest.fence) {
                largest = Some(earlier);
            }
        }
        if let Some(earlier) = largest.filter(|earlier| earlier.fence > win.fence) {
            let sentence = format!("fence {} was given after {}", win.fence, earlier.fence);
            found.push(view.violation("I1", sentence, &[earlier.call, win.call]));
        }
    }
}

/// I1, I8: a grant names its asker, and the key asked for.
pub(super) fn grants_are_the_askers(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    for call in &view.calls {
        let CallRequest::Claim { token: asked, .. } = call.ask else {
            continue;
        };
        let CallReply::Won { token, own, .. } = call.reply else {
            continue;
        };
        if token != asked {
            let sentence = "a claim was granted another asker's lease".to_owned();
            found.push(view.violation("I1", sentence, &[call]));
        }
        if !own {
            let sentence = "a claim was granted a lease of another key".to_owned();
            found.push(view.violation("I8", sentence, &[call]));
        }
    }
}

/// I2, I5, I7, I12: between two leases the key was freed, or the first one lapsed and its policy
/// allowed the second.
pub(super) fn each_lease_follows_from_the_last(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let leases = view.leases();
    let mut hold = None;
    for (index, next) in leases.iter().enumerate() {
        let last = index.checked_sub(1).map(|index| leases[index]);
        let freed = last.is_none_or(|last| {
            view.may_be_released(last.fence, last.call, next.call)
                || view.may_be_deleted(last.call, next.call)
                || view.may_be_expired(&last, next.call)
        });
        // Where the larger fence came first, that is what is wrong (I1), and the rest would be
        // guessing.
        let in_order = |last: &Win<'_>| !is_before(next.call, last.call);
        if let Some(last) = last.filter(|last| !freed && in_order(last))
            && let Some((invariant, why)) = wrongly_taken(view, &last, next, hold)
        {
            let sentence = format!("{why}: fence {} follows {}", next.fence, last.fence);
            found.push(view.violation(invariant, sentence, &[last.call, next.call]));
        }
        // The policy of a life is the one of its first claim (P13), where that is known.
        if next.attempt == 1 {
            hold = Some(next.hold);
        } else if freed {
            hold = None;
        }
    }
}

/// Why `next` cannot have taken over from `last`, whose record was there all along.
fn wrongly_taken(
    view: &View<'_>,
    last: &Win<'_>,
    next: &Win<'_>,
    hold: Option<bool>,
) -> Option<(&'static str, &'static str)> {
    let ended = |is: fn(KeyEnding) -> bool| {
        view.ends().any(|end| {
            let done = end.fence == last.fence && end.call.reply == CallReply::Done;
            done && is(end.ending) && is_before(end.call, next.call)
        })
    };
    if next.payload != last.payload {
        Some(("I7", "another payload was given a lease"))
    } else if ended(KeyEnding::is_answer) {
        Some(("I2", "a key that had its answer was run again"))
    } else if ended(|ending| ending == KeyEnding::InDoubt) {
        Some(("I5", "a key in doubt was run again"))
    } else if hold == Some(true) {
        Some(("I5", "a key under hold was run again"))
    } else if !view.may_be_lapsed(last, next.call) {
        Some(("I5", "a live lease was taken over"))
    } else if next.attempt == 1 {
        Some(("I12", "a live record was forgotten"))
    } else {
        None
    }
}

/// I1, I2: a lease that was settled is not given again, not even to its owner.
pub(super) fn settled_leases_are_not_given(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    for win in &view.wins {
        let mut ends = view.ends().filter(|end| end.fence == win.fence);
        let over =
            ends.find(|end| end.call.reply == CallReply::Done && is_before(end.call, win.call));
        if let Some(end) = over {
            let invariant = if end.ending.is_answer() { "I2" } else { "I1" };
            let sentence = format!("fence {} was given after it was settled", win.fence);
            found.push(view.violation(invariant, sentence, &[end.call, win.call]));
        }
    }
}

/// I12: a record that was neither deleted nor expired is there to be read.
pub(super) fn records_are_not_forgotten(
    view: &View<'_>,
    _: &Endings<'_>,
    found: &mut Vec<Violation>,
) {
    let absent =
        |reply: &CallReply| matches!(reply, CallReply::Seen(None) | CallReply::Deleted(false));
    let leases = view.leases();
    for call in view.calls.iter().filter(|call| absent(&call.reply)) {
        let known = leases.iter().filter(|win| is_before(win.call, call));
        let Some(last) = known.max_by_key(|win| win.fence) else {
            continue;
        };
        let gone = view.may_be_deleted(last.call, call) || view.may_be_expired(last, call);
        if !gone {
            let sentence = "a live record was forgotten".to_owned();
            found.push(view.violation("I12", sentence, &[last.call, call]));
        }
    }
}
