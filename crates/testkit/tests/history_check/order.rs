//! I4, I16, I17: the order of calls, and effects beside each other.

use std::time::Duration;

use semel_testkit::history::{CallReply, CallRequest, Clocks, KeyEnding, check_with_losses};

use crate::story::*;

#[test]
fn i16_a_busy_key_that_nobody_runs() {
    let released = || {
        Story::tell(claim(1), won(5, 1)).then(settle(5, 1, KeyEnding::Released), CallReply::Done)
    };
    released()
        .then(claim(2), CallReply::Busy)
        .breaks("I16", "no order");
    released()
        .then(claim(3), CallReply::Unanswered)
        .then(claim(2), CallReply::Busy)
        .is_fine();
}

#[test]
fn i16_a_lapsed_lease_that_is_not_taken_over() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .wait(LEASE)
        .then(claim(2), CallReply::Busy)
        .breaks("I16", "no order");
    running()
        .wait(LEASE - 1)
        .then(claim(2), CallReply::Busy)
        .is_fine();
}

/// A claim that others overtook says nothing about the record (P4), but there were others.
#[test]
fn i16_an_overtaken_claim_needs_a_writer_beside_it() {
    let lapsed = || Story::tell(claim(1), won(5, 1)).wait(LEASE);
    lapsed()
        .then(claim(2), CallReply::Overtaken)
        .breaks("I16", "no order");
    lapsed()
        .then(claim(2), won_as(7, 2, 2))
        .meanwhile(claim(3), CallReply::Overtaken)
        .is_fine();
    lapsed()
        .then(claim(2), CallReply::Overtaken)
        .meanwhile(claim(3), CallReply::Overtaken)
        .breaks("I16", "no order");
}

/// A store that knows the time only roughly puts the end of a lease off, for so long and no longer.
#[test]
fn i16_a_lapsed_lease_within_the_margin() {
    let margin = Duration::from_micros(LEASE);
    let found = |after: u64, clocks: Clocks| {
        let story = Story::tell(claim(1), won(5, 1))
            .wait(after)
            .then(claim(2), CallReply::Busy);
        check_with_losses(&story.history, clocks, &[])
            .violations
            .len()
    };
    let with_margin = Clocks {
        slack: Duration::ZERO,
        margin,
    };
    assert_eq!(found(LEASE, Clocks::default()), 1);
    assert_eq!(found(LEASE, with_margin), 0);
    assert_eq!(found(3 * LEASE, with_margin), 1);
}

/// Several calls without an answer in a row explain what one does not.
#[test]
fn i16_unanswered_calls_may_have_happened() {
    let lapsed = Story::tell(claim(1), CallReply::Unanswered)
        .wait(LEASE)
        .then(claim(2), UNKNOWN)
        .wait(LEASE);
    lapsed.then(claim(3), won_as(7, 3, 3)).is_fine();
    Story::tell(claim(1), CallReply::Unanswered)
        .wait(LEASE)
        .then(claim(3), won_as(7, 3, 3))
        .breaks("I16", "no order");
}

#[test]
fn i2_an_acknowledged_answer_that_is_not_told() {
    let settled = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    for stale in [
        CallReply::Busy,
        CallReply::Mismatch,
        CallReply::InDoubt { fence: 5 },
    ] {
        let story = settled().then(claim(2), stale);
        let found = semel_testkit::history::check(&story.history);
        assert!(
            !found.is_empty()
                && found
                    .iter()
                    .all(|one| ["I2", "I7"].contains(&one.invariant))
        );
    }
    settled()
        .then(claim(2), CallReply::Replay(ANSWER))
        .is_fine();
    settled().meanwhile(claim(2), CallReply::Busy).is_fine();
}

/// What a replica that took over has not received is lost; a fence that was told is not.
#[test]
fn a_loss_is_shown_or_it_is_none() {
    let lossless = Duration::ZERO;
    let forgotten = Story::tell(claim(1), won(5, 1))
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .then(claim(2), won(6, 2));
    let between = [(5, 6)];
    let checked = check_with_losses(&forgotten.history, lossless, &between);
    assert!(checked.violations.is_empty(), "{:?}", checked.violations);
    assert_eq!(checked.lost.len(), 1);
    // After all of it.
    let checked = check_with_losses(&forgotten.history, lossless, &[(100, 200)]);
    assert!(!checked.violations.is_empty() && checked.lost.is_empty());
    // A lost record doesn't bring back a fence, nor another's answer.
    let backwards = Story::tell(claim(1), won(5, 1))
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .then(claim(2), won(4, 2));
    let checked = check_with_losses(&backwards.history, lossless, &between);
    assert!(!checked.violations.is_empty());
    let invented = Story::tell(claim(1), won(5, 1))
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .then(claim(2), CallReply::Replay(OTHER));
    let checked = check_with_losses(&invented.history, lossless, &between);
    assert!(!checked.violations.is_empty() && checked.lost.is_empty());
    // Nothing was lost where nothing is missing.
    let kept = Story::tell(claim(1), won(5, 1))
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .then(
            CallRequest::Read,
            CallReply::Seen(Some(semel_testkit::history::KeyStanding {
                fence: 5,
                ending: Some(ANSWER),
            })),
        );
    assert!(
        check_with_losses(&kept.history, lossless, &between)
            .lost
            .is_empty()
    );
}

#[test]
fn i4_an_effect_that_begins_late() {
    let late = || Story::tell(claim(1), won(5, 1)).wait(LEASE + 1);
    late().effect(5).breaks("I4", "after its lease had ended");
    late()
        .then(renew(5, 1), CallReply::Held)
        .effect(5)
        .is_fine();
}

/// A claim was under way when the replica took over, and was sent again.
#[test]
fn a_loss_is_shown_beside_unanswered_calls() {
    let story = Story::tell(claim(1), won(5, 1))
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .then(claim(2), CallReply::Replay(ANSWER))
        .then(claim(3), UNKNOWN)
        .then(claim(3), won(6, 3))
        .then(settle(6, 3, OTHER), CallReply::Done)
        .then(claim(4), CallReply::Replay(OTHER));
    let losses = [(1, 9), (100, 200)];
    let checked = check_with_losses(&story.history, Duration::ZERO, &losses);
    assert!(checked.violations.is_empty(), "{:?}", checked.violations);
    assert_eq!(checked.lost.len(), 1);
}
