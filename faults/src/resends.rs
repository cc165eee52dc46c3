//! Claims that a store has sent again by itself, as far as others have seen the first sending.

use std::collections::BTreeSet;

use semel_testkit::history::{Ask, Call, History, Reply};

/// A store may send a claim again whose reply was lost, and only the answer to the last sending is told. The first sending is
/// written down as what it is, a claim without an answer, where it can have been another's:
///
/// - an operator unlocked the lease that it had won, and the second won another: where an unlock was done whose fence nobody was
///   told, under the token of a claim that was on its way then and was told a larger fence;
/// - the record that it had written expired, and the second found another's: where a call took longer than its record lives.
pub(crate) fn write_down(history: &mut History) {
    let mut sendings = unlocked(history);
    sendings.extend(
        history
            .calls
            .iter()
            .filter(|call| outlives_its_record(call))
            .map(first_sending),
    );
    history.calls.extend(sendings);
}

fn first_sending(claim: &Call) -> Call {
    Call {
        end: None,
        ended: None,
        reply: Reply::Unanswered,
        ..claim.clone()
    }
}

fn outlives_its_record(call: &Call) -> bool {
    let took = call.ended.map(|ended| ended.saturating_sub(call.began));
    match call.ask {
        Ask::Claim { retention, .. } => took.is_some_and(|took| took >= retention),
        _ => false,
    }
}

fn unlocked(history: &History) -> Vec<Call> {
    let told: BTreeSet<(&str, u64)> = history.calls.iter().filter_map(fence_of).collect();
    history
        .calls
        .iter()
        .filter(|call| call.is_operators() && call.reply == Reply::Done)
        .filter_map(|unlock| match unlock.ask {
            Ask::Settle { fence, token, .. } if !told.contains(&(&unlock.key, fence)) => {
                Some((unlock, fence, token))
            }
            _ => None,
        })
        .filter_map(|(unlock, fence, token)| {
            let is_it = |call: &&Call| is_won_by(call, unlock, fence, token);
            history.calls.iter().find(is_it)
        })
        .map(first_sending)
        .collect()
}

fn fence_of(call: &Call) -> Option<(&str, u64)> {
    match call.reply {
        Reply::Won { fence, .. } => Some((&call.key, fence)),
        _ => None,
    }
}

/// Whether `claim` was on its way when `unlock` was sent, in the name of `token`, and was told a larger fence.
fn is_won_by(claim: &Call, unlock: &Call, fence: u64, token: u128) -> bool {
    let is_on_its_way =
        claim.start < unlock.start && claim.end.is_some_and(|end| end > unlock.start);
    let is_of_token = matches!(claim.ask, Ask::Claim { token: of, .. } if of == token);
    let is_larger = matches!(claim.reply, Reply::Won { fence: won, .. } if won > fence);
    claim.key == unlock.key && is_on_its_way && is_of_token && is_larger
}

#[cfg(test)]
mod tests {
    use semel_testkit::history::{Ending, OPERATOR, check};

    use super::*;

    fn call(client: u32, (start, end): (u64, u64), ask: Ask, reply: Reply) -> Call {
        Call {
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
        let claim = Ask::Claim {
            token: 1,
            payload: 7,
            hold: false,
            lease: 30_000_000,
            retention: 300_000_000,
            max_attempts: 3,
        };
        let won = Reply::Won {
            fence: 9,
            token: 1,
            attempt: 1,
            own: true,
            checkpoint: 0,
        };
        let unlock = Ask::Settle {
            fence: 5,
            token: 1,
            ending: Ending::Released,
        };
        let calls = vec![
            call(1, (10, 50), claim, won),
            call(1 | OPERATOR, (at, at + 1), unlock, Reply::Done),
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

    fn brief(token: u128) -> Ask {
        Ask::Claim {
            token,
            payload: 7,
            hold: false,
            lease: 60_000,
            retention: 60_000,
            max_attempts: 3,
        }
    }

    /// A claim that takes so long, beside it one that finds a free key busy, and a third that wins in the end.
    fn busy_beside(takes: u64) -> History {
        let won = Reply::Won {
            fence: 9,
            token: 3,
            attempt: 1,
            own: true,
            checkpoint: 0,
        };
        let calls = vec![
            call(1, (1_000, 1_000 + takes), brief(1), Reply::Busy),
            call(2, (2_000, 3_000), brief(2), Reply::Busy),
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
}
