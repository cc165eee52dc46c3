//! I1, I3, I5, I13: who had the key.

use semel_testkit::history::{CallReply, CallRequest, History, KeyEnding, check};

use crate::story::*;

#[test]
fn i1_two_owners_of_one_fence() {
    let story = || Story::tell(claim(1), won(5, 1));
    story()
        .meanwhile(claim(2), won(5, 2))
        .breaks("I1", "two owners");
    story().then(claim(1), won(5, 1)).is_fine();
}

#[test]
fn i1_a_fence_that_goes_back() {
    let released = || {
        Story::tell(claim(1), won(5, 1)).then(settle(5, 1, KeyEnding::Released), CallReply::Done)
    };
    released()
        .then(claim(2), won(4, 2))
        .breaks("I1", "fence 4 was given after 5");
    released().then(claim(2), won(6, 2)).is_fine();
}

#[test]
fn i1_a_grant_of_anothers_lease() {
    Story::tell(claim(1), won(5, 9)).breaks("I1", "another asker's lease");
}

#[test]
fn i1_an_effect_without_a_lease() {
    Story::tell(claim(1), CallReply::Busy)
        .effect(5)
        .breaks("I1", "won no lease");
    Story::tell(claim(1), won(5, 1)).effect(5).is_fine();
}

#[test]
fn i1_two_effects_under_one_lease() {
    Story::tell(claim(1), won(5, 1))
        .effect(5)
        .effect(5)
        .breaks("I1", "two effects");
}

#[test]
fn i3_a_stale_settlement() {
    taken_over()
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .breaks("I3", "fence 5 was heard");
    taken_over()
        .then(settle(5, 1, ANSWER), CallReply::Lost)
        .is_fine();
    taken_over()
        .meanwhile(settle(5, 1, ANSWER), CallReply::Lost)
        .is_fine();
}

#[test]
fn i3_a_stale_renewal() {
    taken_over()
        .then(renew(5, 1), CallReply::Held)
        .breaks("I3", "fence 5 was heard");
    taken_over().then(renew(6, 2), CallReply::Held).is_fine();
}

#[test]
fn i3_a_stale_resolution() {
    let doubted =
        Story::tell(claim(1), won(5, 1)).then(settle(5, 1, KeyEnding::InDoubt), CallReply::Done);
    let resolved = doubted.then(resolve(5, KeyEnding::Released), CallReply::Done);
    let story = resolved.then(claim(2), won(6, 2));
    story
        .then(resolve(5, KeyEnding::Released), CallReply::Done)
        .breaks("I3", "fence 5 was heard");
}

#[test]
fn i3_a_stranger_that_is_heard() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .then(settle(5, 9, ANSWER), CallReply::Done)
        .breaks("I3", "never had fence 5");
    let unsure = Story::tell(claim(1), CallReply::Unanswered);
    unsure.then(settle(5, 1, ANSWER), CallReply::Done).is_fine();
}

#[test]
fn i3_a_settled_lease_that_is_renewed() {
    let done = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    done.then(renew(5, 1), CallReply::Held)
        .breaks("I3", "renewed after it was settled");
}

#[test]
fn i3_a_deleted_lease_that_is_heard() {
    let gone =
        || Story::tell(claim(1), won(5, 1)).then(CallRequest::Delete, CallReply::Deleted(true));
    gone()
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .breaks("I3", "after its record was gone");
    gone().then(settle(5, 1, ANSWER), CallReply::Lost).is_fine();
}

#[test]
fn i3_a_refused_answer_that_is_shown() {
    let refused = taken_over().then(settle(5, 1, ANSWER), CallReply::Lost);
    refused
        .then(claim(3), CallReply::Replay(ANSWER))
        .breaks("I3", "had been refused");
}

#[test]
fn i5_a_takeover_under_hold() {
    let held = || Story::tell(claim_with(1, 7, true), won(5, 1)).wait(LEASE);
    held()
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I5", "under hold");
    let doubted = held().then(claim(2), CallReply::InDoubt { fence: 5 });
    let resolved = doubted.then(resolve(5, KeyEnding::Released), CallReply::Done);
    resolved.then(claim(2), won(6, 2)).is_fine();
    held().wait(RETENTION).then(claim(2), won(6, 2)).is_fine();
}

#[test]
fn i5_a_takeover_before_the_lapse() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .wait(LEASE - 1)
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I5", "a live lease");
    running()
        .wait(LEASE)
        .then(claim(2), won_as(6, 2, 2))
        .is_fine();
    let renewed = || {
        running()
            .wait(LEASE / 2)
            .then(renew(5, 1), CallReply::Held)
            .wait(LEASE / 2)
    };
    renewed()
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I5", "a live lease");
    // The claim was first sent earlier, and may have won then.
    let resent = Story::tell(claim(1), UNKNOWN)
        .wait(LEASE / 2)
        .then(claim(1), won(5, 1));
    resent
        .wait(LEASE / 2)
        .then(claim(2), won_as(6, 2, 2))
        .is_fine();
}

#[test]
fn i5_a_doubt_that_is_run_again() {
    let running = Story::tell(claim(1), won(5, 1));
    let doubted = running
        .then(settle(5, 1, KeyEnding::InDoubt), CallReply::Done)
        .wait(LEASE);
    doubted
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I5", "in doubt was run again");
}

#[test]
fn i13_a_release_after_the_effect_began() {
    let ran = |hold| Story::tell(claim_with(1, 7, hold), won(5, 1)).effect(5);
    let release = || settle(5, 1, KeyEnding::Released);
    ran(true)
        .then(release(), CallReply::Done)
        .breaks("I13", "after its effect had begun");
    ran(false).then(release(), CallReply::Done).is_fine();
    let idle = Story::tell(claim_with(1, 7, true), won(5, 1));
    idle.then(release(), CallReply::Done).is_fine();
}

#[test]
fn histories_of_two_processes_are_judged_together() {
    let mut one = Story::tell(claim(1), won(5, 1)).history;
    let other = Story::tell(claim(2), won(5, 2)).history;
    assert!(check(&one).is_empty() && check(&other).is_empty());
    one.merge(other);
    assert_eq!(check(&one).len(), 1);
}

#[test]
fn a_history_survives_being_written_down() {
    let history = taken_over().effect(6).history;
    let text = serde_json::to_string(&history).unwrap();
    assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
}
