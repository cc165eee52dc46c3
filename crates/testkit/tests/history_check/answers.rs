//! I2, I6, I7, I8, I12: what was answered.

use semel_testkit::history::{CallReply, CallRequest, KeyEnding, KeyStanding};

use crate::story::*;

#[test]
fn i2_a_completed_key_that_runs_again() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    let late = || done().wait(LEASE);
    late()
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I2", "run again");
    late()
        .then(CallRequest::Delete, CallReply::Deleted(true))
        .then(claim(2), won(6, 2))
        .is_fine();
    late()
        .then(CallRequest::Delete, UNKNOWN)
        .then(claim(2), won(6, 2))
        .is_fine();
    done().wait(RETENTION).then(claim(2), won(6, 2)).is_fine();
}

#[test]
fn i2_a_settled_lease_that_is_given_again() {
    let settled =
        |ending| Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ending), CallReply::Done);
    settled(ANSWER)
        .then(claim(1), won(5, 1))
        .breaks("I2", "after it was settled");
    settled(KeyEnding::Released)
        .then(claim(1), won(5, 1))
        .breaks("I1", "after it was settled");
    settled(KeyEnding::Released)
        .then(claim(1), won(6, 1))
        .is_fine();
}

#[test]
fn i2_an_answer_that_changes() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    let asked = |story: Story, ending| story.then(claim(2), CallReply::Replay(ending));
    let unsure = || done().then(settle(5, 1, OTHER), UNKNOWN);
    asked(asked(unsure(), ANSWER), OTHER).breaks("I2", "changed without a new run");
    asked(asked(unsure(), ANSWER), ANSWER).is_fine();
}

#[test]
fn i2_an_answer_that_a_read_shows_changed() {
    let read = |story: Story, ending| {
        let stand = KeyStanding {
            fence: 5,
            ending: Some(ending),
        };
        story.then(CallRequest::Read, CallReply::Seen(Some(stand)))
    };
    let done = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    let unsure = done.then(settle(5, 1, OTHER), UNKNOWN);
    read(read(unsure, ANSWER), OTHER).breaks("I2", "changed without a new run");
}

#[test]
fn i2_an_answer_that_nobody_gave() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .then(claim(2), CallReply::Replay(ANSWER))
        .breaks("I2", "nobody gave");
    let unsure = running().then(settle(5, 1, ANSWER), CallReply::Unanswered);
    unsure.then(claim(2), CallReply::Replay(ANSWER)).is_fine();
}

#[test]
fn i2_a_lease_that_ends_twice() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    done()
        .then(settle(5, 1, OTHER), CallReply::Done)
        .breaks("I2", "two ways");
    done()
        .then(settle(5, 1, KeyEnding::InDoubt), CallReply::Done)
        .breaks("I2", "two ways");
    done().then(settle(5, 1, ANSWER), CallReply::Done).is_fine();
    let doubted =
        Story::tell(claim(1), won(5, 1)).then(settle(5, 1, KeyEnding::InDoubt), CallReply::Done);
    doubted
        .then(settle(5, 1, ANSWER), CallReply::Done)
        .is_fine();
}

#[test]
fn i6_a_resent_claim_that_is_busy() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .then(claim(1), CallReply::Busy)
        .breaks("I6", "found the key busy");
    running()
        .then(claim(2), UNKNOWN)
        .wait(LEASE)
        .then(claim(1), CallReply::Busy)
        .is_fine();
}

#[test]
fn i6_a_resent_settlement_that_is_lost() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    done()
        .then(settle(5, 1, ANSWER), CallReply::Lost)
        .breaks("I6", "sent again, was refused");
    done()
        .wait(RETENTION)
        .then(settle(5, 1, ANSWER), CallReply::Lost)
        .is_fine();
    let freed =
        Story::tell(claim(1), won(5, 1)).then(settle(5, 1, KeyEnding::Released), CallReply::Done);
    let taken = freed.then(claim(2), won(6, 2));
    taken
        .then(settle(5, 1, KeyEnding::Released), CallReply::Lost)
        .is_fine();
}

#[test]
fn i7_a_lease_for_another_payload() {
    let lapsed = || Story::tell(claim(1), won(5, 1)).wait(LEASE);
    let other = claim_with(2, 8, false);
    lapsed()
        .then(other.clone(), won_as(6, 2, 2))
        .breaks("I7", "given a lease");
    lapsed().then(other, CallReply::Mismatch).is_fine();
}

#[test]
fn i7_an_answer_for_another_payload() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), CallReply::Done);
    let other = claim_with(2, 8, false);
    done()
        .then(other.clone(), CallReply::Replay(ANSWER))
        .breaks("I7", "given the answer");
    done().then(other, CallReply::Mismatch).is_fine();
}

#[test]
fn i7_a_mismatch_with_itself() {
    Story::tell(claim(1), won(5, 1))
        .then(claim(2), CallReply::Mismatch)
        .breaks("I7", "all payloads");
}

#[test]
fn i8_another_keys_answer() {
    let running = || Story::tell(settle(5, 1, ANSWER), CallReply::Lost).elsewhere();
    running()
        .then(claim(2), CallReply::Replay(ANSWER))
        .breaks("I8", "another key's answer");
}

#[test]
fn i8_another_keys_lease() {
    let foreign = CallReply::Won {
        fence: 5,
        token: 1,
        attempt: 1,
        own: false,
        checkpoint: 0,
    };
    Story::tell(claim(1), foreign).breaks("I8", "another key");
}

#[test]
fn i12_a_record_that_is_forgotten() {
    let lapsed = || Story::tell(claim(1), won(5, 1)).wait(LEASE);
    lapsed()
        .then(claim(2), won(6, 2))
        .breaks("I12", "forgotten");
    lapsed()
        .then(CallRequest::Read, CallReply::Seen(None))
        .breaks("I12", "forgotten");
    lapsed()
        .then(CallRequest::Delete, CallReply::Deleted(false))
        .breaks("I12", "forgotten");
    lapsed()
        .wait(RETENTION)
        .then(CallRequest::Read, CallReply::Seen(None))
        .is_fine();
    // A claim sent again shows the lease, and does not prolong it.
    let resent = lapsed().then(claim(1), won(5, 1)).wait(RETENTION - LEASE);
    resent
        .then(CallRequest::Read, CallReply::Seen(None))
        .is_fine();
    let gone = lapsed().then(CallRequest::Delete, CallReply::Deleted(true));
    gone.then(CallRequest::Delete, CallReply::Deleted(false))
        .then(CallRequest::Read, CallReply::Seen(None))
        .is_fine();
}
