//! The history checker flags each kind of impossible history, and nothing about its possible twin.

use semel_testkit::history::{Ask, Call, Effect, Ending, History, Reply, Stand, check};

const LEASE: u64 = 30_000_000;
const RETENTION: u64 = 300_000_000;
const ANSWER: Ending = Ending::Completed(1);
const OTHER: Ending = Ending::Completed(2);

/// Writes histories down, one call after the other.
#[derive(Default)]
struct Story {
    history: History,
    tick: u64,
    now: u64,
}

impl Story {
    fn tell(ask: Ask, reply: Reply) -> Self {
        Self::default().then(ask, reply)
    }

    /// The next call begins when the last is over.
    fn then(mut self, ask: Ask, reply: Reply) -> Self {
        self.tick += 2;
        let unanswered = reply == Reply::Unanswered;
        self.history.calls.push(Call {
            client: 1,
            key: "aaaa0000".to_owned(),
            start: self.tick,
            end: (!unanswered).then_some(self.tick + 1),
            began: self.now,
            ended: (!unanswered).then_some(self.now),
            ask,
            reply,
        });
        self
    }

    /// The next call is sent before the last one is answered.
    fn meanwhile(mut self, ask: Ask, reply: Reply) -> Self {
        self.tick -= 2;
        let start = self.tick;
        self = self.then(ask, reply);
        self.tick = start + 2;
        self
    }

    fn wait(mut self, micros: u64) -> Self {
        self.now += micros;
        self
    }

    fn elsewhere(mut self) -> Self {
        if let Some(call) = self.history.calls.last_mut() {
            call.key = "bbbb0000".to_owned();
        }
        self
    }

    fn effect(mut self, fence: u64) -> Self {
        self.tick += 2;
        self.history.effects.push(Effect {
            client: 1,
            key: "aaaa0000".to_owned(),
            fence,
            attempt: 1,
            start: self.tick,
            end: Some(self.tick + 1),
        });
        self
    }

    /// Exactly this is wrong, and the sentence comes with a few calls that show it.
    fn breaks(&self, invariant: &str, sentence: &str) {
        let found = check(&self.history);
        let shown: String = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "expected {invariant}, found:\n{shown}");
        assert_eq!(found[0].invariant, invariant, "{shown}");
        assert!(found[0].sentence.contains(sentence), "{shown}");
        let slice = found[0].calls.len() + found[0].effects.len();
        assert!((1..=3).contains(&slice), "{slice} lines: {shown}");
    }

    /// Nothing is wrong.
    fn is_fine(&self) {
        let found = check(&self.history);
        let shown: String = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{shown}");
    }
}

fn claim(token: u128) -> Ask {
    claim_with(token, 7, false)
}

fn claim_with(token: u128, payload: u64, hold: bool) -> Ask {
    Ask::Claim {
        token,
        payload,
        hold,
        lease: LEASE,
        retention: RETENTION,
    }
}

fn won(fence: u64, token: u128) -> Reply {
    won_as(fence, token, 1)
}

fn won_as(fence: u64, token: u128, attempt: u16) -> Reply {
    Reply::Won {
        fence,
        token,
        attempt,
        own: true,
    }
}

fn settle(fence: u64, token: u128, ending: Ending) -> Ask {
    Ask::Settle {
        fence,
        token,
        ending,
    }
}

fn renew(fence: u64, token: u128) -> Ask {
    Ask::Renew { fence, token }
}

fn resolve(fence: u64, ending: Ending) -> Ask {
    Ask::Resolve { fence, ending }
}

const UNKNOWN: Reply = Reply::Failed { definite: false };

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
    let released =
        || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, Ending::Released), Reply::Done);
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
    Story::tell(claim(1), Reply::Busy)
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
fn i2_a_completed_key_that_runs_again() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    let late = || done().wait(LEASE);
    late()
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I2", "run again");
    late()
        .then(Ask::Delete, Reply::Deleted(true))
        .then(claim(2), won(6, 2))
        .is_fine();
    late()
        .then(Ask::Delete, UNKNOWN)
        .then(claim(2), won(6, 2))
        .is_fine();
    done().wait(RETENTION).then(claim(2), won(6, 2)).is_fine();
}

#[test]
fn i2_an_answer_that_changes() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    let asked = |story: Story, ending| story.then(claim(2), Reply::Replay(ending));
    let unsure = || done().then(settle(5, 1, OTHER), UNKNOWN);
    asked(asked(unsure(), ANSWER), OTHER).breaks("I2", "changed without a new run");
    asked(asked(unsure(), ANSWER), ANSWER).is_fine();
}

#[test]
fn i2_an_answer_that_a_read_shows_changed() {
    let read = |story: Story, ending| {
        let stand = Stand {
            fence: 5,
            ending: Some(ending),
        };
        story.then(Ask::Read, Reply::Seen(Some(stand)))
    };
    let done = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    let unsure = done.then(settle(5, 1, OTHER), UNKNOWN);
    read(read(unsure, ANSWER), OTHER).breaks("I2", "changed without a new run");
}

#[test]
fn i2_an_answer_that_nobody_gave() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .then(claim(2), Reply::Replay(ANSWER))
        .breaks("I2", "nobody gave");
    let unsure = running().then(settle(5, 1, ANSWER), Reply::Unanswered);
    unsure.then(claim(2), Reply::Replay(ANSWER)).is_fine();
}

#[test]
fn i2_a_lease_that_ends_twice() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    done()
        .then(settle(5, 1, OTHER), Reply::Done)
        .breaks("I2", "two ways");
    done()
        .then(settle(5, 1, Ending::InDoubt), Reply::Done)
        .breaks("I2", "two ways");
    done().then(settle(5, 1, ANSWER), Reply::Done).is_fine();
    let doubted = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, Ending::InDoubt), Reply::Done);
    doubted.then(settle(5, 1, ANSWER), Reply::Done).is_fine();
}

fn taken_over() -> Story {
    Story::tell(claim(1), won(5, 1))
        .wait(LEASE)
        .then(claim(2), won_as(6, 2, 2))
}

#[test]
fn i3_a_stale_settlement() {
    taken_over()
        .then(settle(5, 1, ANSWER), Reply::Done)
        .breaks("I3", "fence 5 was heard");
    taken_over()
        .then(settle(5, 1, ANSWER), Reply::Lost)
        .is_fine();
    taken_over()
        .meanwhile(settle(5, 1, ANSWER), Reply::Lost)
        .is_fine();
}

#[test]
fn i3_a_stale_renewal() {
    taken_over()
        .then(renew(5, 1), Reply::Held)
        .breaks("I3", "fence 5 was heard");
    taken_over().then(renew(6, 2), Reply::Held).is_fine();
}

#[test]
fn i3_a_stale_resolution() {
    let doubted = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, Ending::InDoubt), Reply::Done);
    let resolved = doubted.then(resolve(5, Ending::Released), Reply::Done);
    let story = resolved.then(claim(2), won(6, 2));
    story
        .then(resolve(5, Ending::Released), Reply::Done)
        .breaks("I3", "fence 5 was heard");
}

#[test]
fn i3_a_stranger_that_is_heard() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .then(settle(5, 9, ANSWER), Reply::Done)
        .breaks("I3", "never had fence 5");
    let unsure = Story::tell(claim(1), Reply::Unanswered);
    unsure.then(settle(5, 1, ANSWER), Reply::Done).is_fine();
}

#[test]
fn i3_a_settled_lease_that_is_renewed() {
    let done = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    done.then(renew(5, 1), Reply::Held)
        .breaks("I3", "renewed after it was settled");
}

#[test]
fn i3_a_deleted_lease_that_is_heard() {
    let gone = || Story::tell(claim(1), won(5, 1)).then(Ask::Delete, Reply::Deleted(true));
    gone()
        .then(settle(5, 1, ANSWER), Reply::Done)
        .breaks("I3", "after its record was gone");
    gone().then(settle(5, 1, ANSWER), Reply::Lost).is_fine();
}

#[test]
fn i3_a_refused_answer_that_is_shown() {
    let refused = taken_over().then(settle(5, 1, ANSWER), Reply::Lost);
    refused
        .then(claim(3), Reply::Replay(ANSWER))
        .breaks("I3", "had been refused");
}

#[test]
fn i5_a_takeover_under_hold() {
    let held = || Story::tell(claim_with(1, 7, true), won(5, 1)).wait(LEASE);
    held()
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I5", "under hold");
    let doubted = held().then(claim(2), Reply::InDoubt { fence: 5 });
    let resolved = doubted.then(resolve(5, Ending::Released), Reply::Done);
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
            .then(renew(5, 1), Reply::Held)
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
        .then(settle(5, 1, Ending::InDoubt), Reply::Done)
        .wait(LEASE);
    doubted
        .then(claim(2), won_as(6, 2, 2))
        .breaks("I5", "in doubt was run again");
}

#[test]
fn i6_a_resent_claim_that_is_busy() {
    let running = || Story::tell(claim(1), won(5, 1));
    running()
        .then(claim(1), Reply::Busy)
        .breaks("I6", "found the key busy");
    running()
        .then(claim(2), UNKNOWN)
        .then(claim(1), Reply::Busy)
        .is_fine();
}

#[test]
fn i6_a_resent_settlement_that_is_lost() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    done()
        .then(settle(5, 1, ANSWER), Reply::Lost)
        .breaks("I6", "sent again, was refused");
    done()
        .wait(RETENTION)
        .then(settle(5, 1, ANSWER), Reply::Lost)
        .is_fine();
    let freed = Story::tell(claim(1), won(5, 1)).then(settle(5, 1, Ending::Released), Reply::Done);
    let taken = freed.then(claim(2), won(6, 2));
    taken
        .then(settle(5, 1, Ending::Released), Reply::Lost)
        .is_fine();
}

#[test]
fn i7_a_lease_for_another_payload() {
    let lapsed = || Story::tell(claim(1), won(5, 1)).wait(LEASE);
    let other = claim_with(2, 8, false);
    lapsed()
        .then(other.clone(), won_as(6, 2, 2))
        .breaks("I7", "given a lease");
    lapsed().then(other, Reply::Mismatch).is_fine();
}

#[test]
fn i7_an_answer_for_another_payload() {
    let done = || Story::tell(claim(1), won(5, 1)).then(settle(5, 1, ANSWER), Reply::Done);
    let other = claim_with(2, 8, false);
    done()
        .then(other.clone(), Reply::Replay(ANSWER))
        .breaks("I7", "given the answer");
    done().then(other, Reply::Mismatch).is_fine();
}

#[test]
fn i7_a_mismatch_with_itself() {
    Story::tell(claim(1), won(5, 1))
        .then(claim(2), Reply::Mismatch)
        .breaks("I7", "all payloads");
}

#[test]
fn i8_another_keys_answer() {
    let running = || Story::tell(settle(5, 1, ANSWER), Reply::Lost).elsewhere();
    running()
        .then(claim(2), Reply::Replay(ANSWER))
        .breaks("I8", "another key's answer");
}

#[test]
fn i8_another_keys_lease() {
    let foreign = Reply::Won {
        fence: 5,
        token: 1,
        attempt: 1,
        own: false,
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
        .then(Ask::Read, Reply::Seen(None))
        .breaks("I12", "forgotten");
    lapsed()
        .then(Ask::Delete, Reply::Deleted(false))
        .breaks("I12", "forgotten");
    lapsed()
        .wait(RETENTION)
        .then(Ask::Read, Reply::Seen(None))
        .is_fine();
    let gone = lapsed().then(Ask::Delete, Reply::Deleted(true));
    gone.then(Ask::Delete, Reply::Deleted(false))
        .then(Ask::Read, Reply::Seen(None))
        .is_fine();
}

#[test]
fn i13_a_release_after_the_effect_began() {
    let ran = |hold| Story::tell(claim_with(1, 7, hold), won(5, 1)).effect(5);
    let release = || settle(5, 1, Ending::Released);
    ran(true)
        .then(release(), Reply::Done)
        .breaks("I13", "after its effect had begun");
    ran(false).then(release(), Reply::Done).is_fine();
    let idle = Story::tell(claim_with(1, 7, true), won(5, 1));
    idle.then(release(), Reply::Done).is_fine();
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
