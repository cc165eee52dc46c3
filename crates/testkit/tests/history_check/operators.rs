//! I13, I17: what an operator's unlock explains, and what it doesn't. P15: checkpoints.

use semel_testkit::history::{CallReply, CallRequest, KeyEnding, check};

use crate::story::*;

fn at_work(hold: bool) -> Story {
    Story::tell(claim_with(1, 7, hold), won(5, 1)).long_effect(5)
}

fn unlock(story: Story, ending: KeyEnding) -> Story {
    story
        .then(settle(5, 1, ending), CallReply::Done)
        .by_operator()
}

/// The next owner begins while the last one is at work.
fn next_owner(story: Story) -> Story {
    story.then(claim_with(2, 7, true), won(6, 2)).long_effect(6)
}

#[test]
fn i17_an_operator_may_free_a_key_at_work() {
    next_owner(unlock(at_work(false), KeyEnding::Released)).is_fine();
}

#[test]
fn i17_an_owner_may_not() {
    let released = at_work(false).then(settle(5, 1, KeyEnding::Released), CallReply::Done);
    next_owner(released).breaks("I17", "fences 5 and 6");
}

#[test]
fn i17_an_unlock_that_was_refused_explains_nothing() {
    let refused = at_work(false)
        .then(settle(5, 1, KeyEnding::Released), CallReply::Lost)
        .by_operator()
        .then(settle(5, 1, KeyEnding::Released), CallReply::Done);
    let found = check(&next_owner(refused).history);
    assert!(
        found.iter().any(|violation| violation.invariant == "I17"),
        "{found:?}"
    );
}

#[test]
fn i17_an_unlock_of_another_lease_explains_nothing() {
    let freed = Story::tell(claim(9), won(4, 9))
        .then(settle(4, 9, KeyEnding::Released), CallReply::Done)
        .by_operator()
        .then(claim(1), won(5, 1))
        .long_effect(5);
    let released = freed.then(settle(5, 1, KeyEnding::Released), CallReply::Done);
    next_owner(released).breaks("I17", "fences 5 and 6");
}

#[test]
fn i17_unlock_into_doubt_frees_nothing_until_resolved() {
    let doubted = || unlock(at_work(true), KeyEnding::InDoubt);
    let resolved = doubted()
        .then(resolve(5, KeyEnding::Released), CallReply::Done)
        .by_operator();
    next_owner(resolved).is_fine();
    let found = check(&next_owner(doubted()).history);
    assert!(
        found.iter().any(|violation| violation.invariant == "I17"),
        "{found:?}"
    );
}

#[test]
fn i13_an_operator_may_release_what_was_begun_under_hold() {
    unlock(at_work(true), KeyEnding::Released).is_fine();
    at_work(true)
        .then(settle(5, 1, KeyEnding::Released), CallReply::Done)
        .breaks("I13", "under hold was released");
}

fn keep(checkpoint: u64) -> CallRequest {
    CallRequest::Renew {
        fence: 5,
        token: 1,
        checkpoint: Some(checkpoint),
    }
}

fn takeover_with(progress: u64) -> CallReply {
    CallReply::Won {
        fence: 6,
        token: 2,
        attempt: 2,
        own: true,
        checkpoint: progress,
    }
}

#[test]
fn p15_the_last_checkpoint_is_handed_on() {
    let kept = || {
        Story::tell(claim(1), won(5, 1))
            .then(keep(8), CallReply::Held)
            .then(keep(9), CallReply::Held)
            .then(renew(5, 1), CallReply::Held)
            .wait(LEASE)
    };
    kept().then(claim(2), takeover_with(9)).is_fine();
    kept()
        .then(claim(2), takeover_with(8))
        .breaks("I16", "no order of the calls");
    kept()
        .then(claim(2), takeover_with(0))
        .breaks("I16", "no order of the calls");
}
