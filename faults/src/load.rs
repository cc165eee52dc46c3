//! The number of store calls per request: waiters must be woken or pause, and not poll.

use std::collections::BTreeMap;
use std::time::Duration;

use semel_testkit::history::{CallRecord, CallReply, CallRequest, Read, Violation};

/// The shortest pause of a waiter that nobody wakes; pauses grow, with jitter.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// A claim, a claim after a lost reply, a settlement, a renewal; each may be sent twice.
const PER_REQUEST: u64 = 8;

/// The calls of one process for one key.
#[derive(Default)]
struct Share {
    claims: u64,
    requests: u64,
    waited: u64,
}

/// Finds keys for which a process called more often than its requests explain. Only of `survivors`,
/// which were alive at the end of the round: how many callers waited in a killed process is
/// unknown.
pub(crate) fn check(all: &Read, survivors: &[u32]) -> Vec<Violation> {
    let mut shares: BTreeMap<(u32, &str), Share> = BTreeMap::new();
    for told in &all.reports {
        let share = shares.entry((told.client, &told.key)).or_default();
        share.requests += 1;
        share.waited += told.end.saturating_sub(told.start);
    }
    let mut changes: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &all.history.calls {
        *changes.entry(&call.key).or_default() += u64::from(changes_the_record(call));
        if matches!(call.ask, CallRequest::Claim { .. }) {
            let share = shares.entry((call.client, &call.key)).or_default();
            share.claims += 1;
        }
    }
    let mut found = Vec::new();
    for ((client, key), share) in &shares {
        let most = share.most(changes.get(key).copied().unwrap_or(0));
        if share.claims > most && survivors.contains(client) {
            let Share {
                claims, requests, ..
            } = share;
            let sentence = format!(
                "client {client} claimed {claims} times for {requests} requests, at most {most} are explained"
            );
            found.push(Violation {
                invariant: "load",
                key: (*key).to_owned(),
                sentence,
                calls: Vec::new(),
                effects: Vec::new(),
            });
        }
    }
    found
}

impl Share {
    /// The largest number of calls: one per request, one per wake-up, one per pause.
    fn most(&self, changes: u64) -> u64 {
        let pause = u64::try_from(SHORTEST_PAUSE.as_nanos()).unwrap_or(u64::MAX);
        self.requests * PER_REQUEST + self.requests.min(16) * changes + self.waited / pause
    }
}

fn changes_the_record(call: &CallRecord) -> bool {
    matches!(
        call.reply,
        CallReply::Won { .. }
            | CallReply::Done
            | CallReply::Deleted(true)
            | CallReply::InDoubt { .. }
    )
}

#[cfg(test)]
mod tests {
    use semel_testkit::history::callers::{CallerOutcome, CallerReport};

    use super::*;

    /// One request that waits for a second, with this number of claims.
    fn waits(claims: u64) -> Read {
        let mut all = Read::default();
        let key = "k".to_owned();
        all.reports.push(CallerReport {
            client: 1,
            key: key.clone(),
            payload: 1,
            start: 0,
            end: 1_000_000_000,
            what: CallerOutcome::Busy,
        });
        for number in 0..claims {
            let start = number * 1_000_000_000 / claims;
            all.history.calls.push(CallRecord {
                client: 1,
                key: key.clone(),
                start,
                end: Some(start + 1),
                began: start / 1_000,
                ended: Some(start / 1_000),
                ask: CallRequest::Claim {
                    token: 1,
                    payload: 1,
                    hold: false,
                    lease: 1,
                    retention: 1,
                    max_attempts: 1,
                },
                reply: CallReply::Busy,
            });
        }
        all
    }

    #[test]
    fn a_waiter_without_pauses_is_found() {
        assert!(check(&waits(20), &[1]).is_empty());
        assert_eq!(check(&waits(400), &[1]).len(), 1);
    }

    /// The requests of a killed process are not all reported, and its replacement may have none.
    #[test]
    fn a_killed_process_is_not_judged() {
        assert!(check(&waits(400), &[101]).is_empty());
    }
}
