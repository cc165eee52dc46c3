//! Calls that a store sent twice by itself, because it lost the first reply.

use std::collections::BTreeSet;

use semel_testkit::history::{CallRecord, CallReply, CallRequest, History, KeyEnding};

/// Adds the first sending of calls that a store sent twice. After a lost reply a store may repeat
/// a call, and only the last answer is recorded. The first sending of a claim is added, without an
/// answer, where it may have won a lease of its own:
///
/// - An operator unlocked the lease that it had won, and the repetition won another. The unlock
///   names a fence that no caller knows, under the token of a claim that was in flight and got a
///   larger fence.
/// - Its record expired, and the repetition found another one. The call took longer than its
///   record lives.
///
/// That of a release is added where the repetition lost to a claim that won the freed key while the
/// release was on its way.
pub(crate) fn write_down(history: &mut History) {
    let mut sendings = unlocked(history);
    sendings.extend(
        history
            .calls
            .iter()
            .filter(|call| outlives_its_record(call))
            .map(first_sending),
    );
    let repeated = history
        .calls
        .iter()
        .filter(|call| is_lost_to_a_later_claim(call, history));
    sendings.extend(repeated.map(first_sending));
    history.calls.extend(sendings);
}

fn first_sending(call: &CallRecord) -> CallRecord {
    CallRecord {
        end: None,
        ended: None,
        reply: CallReply::Unanswered,
        ..call.clone()
    }
}

fn outlives_its_record(call: &CallRecord) -> bool {
    let took = call.ended.map(|ended| ended.saturating_sub(call.began));
    match call.ask {
        CallRequest::Claim { retention, .. } => took.is_some_and(|took| took >= retention),
        _ => false,
    }
}

/// Whether a release was told *Lost*, and another claim won the key while it was on its way.
fn is_lost_to_a_later_claim(release: &CallRecord, history: &History) -> bool {
    let CallRequest::Settle {
        fence,
        ending: KeyEnding::Released,
        ..
    } = release.ask
    else {
        return false;
    };
    let won_meanwhile = |call: &CallRecord| {
        let is_later =
            matches!(call.reply, CallReply::Won { fence: won, attempt: 1, .. } if won > fence);
        let overlaps = call.end.is_some_and(|end| end > release.start)
            && release.end.is_some_and(|end| call.start < end);
        call.key == release.key && is_later && overlaps
    };
    release.reply == CallReply::Lost && history.calls.iter().any(won_meanwhile)
}

fn unlocked(history: &History) -> Vec<CallRecord> {
    let told: BTreeSet<(&str, u64)> = history.calls.iter().filter_map(fence_of).collect();
    history
        .calls
        .iter()
        .filter(|call| call.is_operators() && call.reply == CallReply::Done)
        .filter_map(|unlock| match unlock.ask {
            CallRequest::Settle { fence, token, .. } if !told.contains(&(&unlock.key, fence)) => {
                Some((unlock, fence, token))
            }
            _ => None,
        })
        .filter_map(|(unlock, fence, token)| {
            let is_it = |call: &&CallRecord| is_won_by(call, unlock, fence, token);
            history.calls.iter().find(is_it)
        })
        .map(first_sending)
        .collect()
}

fn fence_of(call: &CallRecord) -> Option<(&str, u64)> {
    match call.reply {
        CallReply::Won { fence, .. } => Some((&call.key, fence)),
        _ => None,
    }
}

/// Whether `claim` was on its way when `unlock` was sent, in the name of `token`, and was told a
/// larger fence.
fn is_won_by(claim: &CallRecord, unlock: &CallRecord, fence: u64, token: u128) -> bool {
    let is_on_its_way =
        claim.start < unlock.start && claim.end.is_some_and(|end| end > unlock.start);
    let is_of_token = matches!(claim.ask, CallRequest::Claim { token: of, .. } if of == token);
    let is_larger = matches!(claim.reply, CallReply::Won { fence: won, .. } if won > fence);
    claim.key == unlock.key && is_on_its_way && is_of_token && is_larger
}

#[cfg(test)]
mod tests {
    use semel_testkit::history::{OPERATOR, check};

    use super::*;

    fn call(
        client: u32,
        (start, end): (u64, u64),
        ask: CallRequest,
        reply: CallReply,
    ) -> CallRecord {
        CallRecord {
            client,
            key: "k".to_owned(),
            start,
            end: Some(end),
            began: start,
            ended: Some(end),
            ask,
            reply,
        }
    }

    /// A claim that is told fence 9, and an unlock of fence 5 under its token, sent at a time.
    fn unlocked(at: u64) -> History {
        let claim = CallRequest::Claim {
            token: 1,
            payload: 7,
            hold: false,
            lease: 30_000_000,
            retention: 300_000_000,
            max_attempts: 3,
        };
        let won = CallReply::Won {
            fence: 9,
            token: 1,
            attempt: 1,
            own: true,
            checkpoint: 0,
        };
        let unlock = CallRequest::Settle {
            fence: 5,
            token: 1,
            ending: KeyEnding::Released,
        };
        let calls = vec![
            call(1, (10, 50), claim, won),
            call(1 | OPERATOR, (at, at + 1), unlock, CallReply::Done),
        ];
        History {
            calls,
            effects: Vec::new(),
        }
    }

    #[test]
    fn a_lease_that_was_unlocked_before_it_was_told_is_explained() {
        let mut history = unlocked(20);
        assert!(!check(&history).is_empty());
        write_down(&mut history);
        assert!(check(&history).is_empty(), "{:?}", check(&history));
    }

    #[test]
    fn an_unlock_of_a_lease_that_nobody_can_have_had_is_found() {
        for at in [5, 60] {
            let mut history = unlocked(at);
            write_down(&mut history);
            assert!(!check(&history).is_empty(), "sent at {at}");
        }
    }

    fn brief(token: u128) -> CallRequest {
        CallRequest::Claim {
            token,
            payload: 7,
            hold: false,
            lease: 60_000,
            retention: 60_000,
            max_attempts: 3,
        }
    }

    /// A claim that takes so long, beside it one that finds a free key busy, and a third that wins
    /// in the end.
    fn busy_beside(takes: u64) -> History {
        let won = CallReply::Won {
            fence: 9,
            token: 3,
            attempt: 1,
            own: true,
            checkpoint: 0,
        };
        let calls = vec![
            call(1, (1_000, 1_000 + takes), brief(1), CallReply::Busy),
            call(2, (2_000, 3_000), brief(2), CallReply::Busy),
            call(3, (70_000, 80_000), brief(3), won),
        ];
        History {
            calls,
            effects: Vec::new(),
        }
    }

    #[test]
    fn a_claim_that_outlives_its_record_may_have_been_sent_twice() {
        let mut slow = busy_beside(90_000);
        assert!(!check(&slow).is_empty());
        write_down(&mut slow);
        assert!(check(&slow).is_empty(), "{:?}", check(&slow));
        let mut quick = busy_beside(3_000);
        write_down(&mut quick);
        assert!(!check(&quick).is_empty());
    }

    /// An owner whose release is told *Lost*, and another that wins the key at a time.
    fn released(at: u64) -> History {
        let claim = |token| CallRequest::Claim {
            token,
            payload: 7,
            hold: true,
            lease: 30_000_000,
            retention: 300_000_000,
            max_attempts: 3,
        };
        let won = |token, fence| CallReply::Won {
            fence,
            token,
            attempt: 1,
            own: true,
            checkpoint: 0,
        };
        let release = CallRequest::Settle {
            fence: 5,
            token: 1,
            ending: KeyEnding::Released,
        };
        let calls = vec![
            call(1, (10, 20), claim(1), won(1, 5)),
            call(1, (30, 100), release, CallReply::Lost),
            call(2, (at, at + 10), claim(2), won(2, 9)),
        ];
        History {
            calls,
            effects: Vec::new(),
        }
    }

    #[test]
    fn a_release_whose_repetition_lost_may_have_freed_the_key() {
        let mut history = released(50);
        assert!(!check(&history).is_empty());
        write_down(&mut history);
        assert!(check(&history).is_empty(), "{:?}", check(&history));
        let mut later = released(200);
        write_down(&mut later);
        assert!(!check(&later).is_empty(), "nothing freed the key");
    }
}
