//! Checks a round: merges the histories of all processes, and judges them key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use semel::core::ClaimTerms;
use semel_testkit::history::callers::{self, CallerOutcome, Reading};
use semel_testkit::history::{
    CallRecord, CallReply, CallRequest, Clocks, Read, Violation, check_with_losses, read_lines,
};

use crate::clock::ClockJump;
use crate::worker::doors::{self, Doors};
use crate::{load, resends};

/// Times of faults that the checker must know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    /// A client was stopped during this time.
    pub(crate) pauses: Vec<(u32, u64, u64)>,
    /// Jumps of the store's clock.
    pub(crate) jumps: Vec<ClockJump>,
    /// A replica that may have been behind took over during this time.
    pub(crate) failovers: Vec<(u64, u64)>,
    /// The clients that were alive at the end.
    pub(crate) survivors: Vec<u32>,
}

/// How strictly a history is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strictness {
    /// How far the clocks of store and history may diverge over a lease.
    pub(crate) slack: Duration,
    /// How long the store may delay the end of a lease.
    pub(crate) margin: Duration,
    /// Whether the store's guarantee allows a failover to lose acknowledged writes.
    pub(crate) may_lose: bool,
}

/// The result of a round.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The number of requests.
    pub(crate) operations: u64,
    /// The number of requests with a response or a final failure.
    pub(crate) answered: u64,
    /// The number of store calls.
    pub(crate) calls: u64,
    pub(crate) effects: u64,
    pub(crate) keys: u64,
    /// Keys that some caller found in doubt.
    pub(crate) doubts: u64,
    /// Successful takeovers.
    pub(crate) takeovers: u64,
    /// Keys that expired and were claimed again.
    pub(crate) expired: u64,
    /// Keys whose acknowledged record a failover lost, as the guarantee allows.
    pub(crate) lost_as_stated: u64,
    /// Checked operations by door.
    pub(crate) doors: Doors,
    /// Violations, with the whole history of the key.
    pub(crate) violations: Vec<(Violation, String)>,
}

/// Reads the files of a round, and checks them.
pub(crate) fn judge(files: &[PathBuf], windows: &Windows, how: Strictness) -> Result<Verdict> {
    let mut all = Read::default();
    for file in files {
        // A worker that was killed early wrote nothing.
        let Ok(text) = File::open(file) else { continue };
        let read = read_lines(BufReader::new(text));
        all.merge(read.with_context(|| format!("{}", file.display()))?);
    }
    leave_canaries_out(&mut all);
    let mut verdict = count(&all);
    resends::write_down(&mut all.history);
    shift(&mut all.history.calls, &windows.jumps);
    if !windows.jumps.is_empty() {
        // The owner's clock decides when an effect may begin (I4), and calls are on the store's
        // clock by now.
        all.history
            .effects
            .iter_mut()
            .for_each(|effect| effect.began = 0);
    }
    let expiring: BTreeSet<String> = expiring(&all.history.calls);
    if !windows.jumps.is_empty() {
        // A clock set back revives expired records that are not swept yet, so such keys are not
        // judged in such a round.
        all.history
            .calls
            .retain(|call| !expiring.contains(&call.key));
        all.history
            .effects
            .retain(|effect| !expiring.contains(&effect.key));
    }
    let failovers: &[_] = if how.may_lose {
        &windows.failovers
    } else {
        &[]
    };
    let clocks = Clocks {
        slack: how.slack,
        margin: how.margin,
    };
    let checked = check_with_losses(&all.history, clocks, failovers);
    let mut found = checked.violations;
    found.extend(load::check(&all, &windows.survivors));
    verdict.lost_as_stated = checked.lost.len() as u64;
    all.reports.retain(|told| !expiring.contains(&told.key));
    let lasting = |key: &String| !expiring.contains(key);
    let effects: Vec<_> = all
        .history
        .effects
        .iter()
        .filter(|effect| lasting(&effect.key))
        .cloned()
        .collect();
    let reading = Reading {
        store: Some(&all.history),
        undisturbed: false,
    };
    let told = callers::check(&all.reports, &effects, reading).into_iter();
    // The response belongs to a record that was lost, as shown for this key.
    found.extend(told.filter(|violation| {
        let is_lost = checked.lost.contains(&violation.key);
        !(is_lost && is_across(violation, &all, failovers))
    }));
    found.retain(|violation| !is_of_a_pause(violation, windows) && !is_of_a_resend(violation));
    found.retain(|violation| !is_of_a_jump(violation, &all.history.calls, windows));
    // A busy machine may stop a process for longer than the shortest leases.
    found.retain(|violation| violation.invariant != "I4" || lasting(&violation.key));
    let shown = found.into_iter().map(|violation| {
        let story = story(&violation.key, &all, windows);
        (violation, story)
    });
    verdict.violations = shown.collect();
    Ok(verdict)
}

fn count(all: &Read) -> Verdict {
    let wins = |least: u16| {
        let won = all.history.calls.iter().filter(
            move |call| matches!(call.reply, CallReply::Won { attempt, .. } if attempt >= least),
        );
        won.count() as u64
    };
    let doubtful = all
        .reports
        .iter()
        .filter(|told| told.what == CallerOutcome::InDoubt);
    let keys: BTreeSet<&str> = all.reports.iter().map(|told| &*told.key).collect();
    let tiny = expiring(&all.history.calls);
    let mut lives: BTreeMap<&str, u64> = BTreeMap::new();
    for call in all
        .history
        .calls
        .iter()
        .filter(|call| tiny.contains(&call.key))
    {
        if matches!(call.reply, CallReply::Won { attempt: 1, .. }) {
            *lives.entry(&call.key).or_default() += 1;
        }
    }
    Verdict {
        operations: all.reports.len() as u64,
        answered: all
            .reports
            .iter()
            .filter(|told| matches!(told.what, CallerOutcome::Answer(_)))
            .count() as u64,
        calls: all.history.calls.len() as u64,
        effects: all.history.effects.len() as u64,
        keys: keys.len() as u64,
        doubts: doubtful
            .map(|told| &*told.key)
            .collect::<BTreeSet<_>>()
            .len() as u64,
        takeovers: wins(2),
        expired: lives.values().map(|lives| lives - 1).sum(),
        doors: doors::count(all),
        ..Verdict::default()
    }
}

/// The canary record of the shared secret is older than the round, and its history is elsewhere.
fn leave_canaries_out(all: &mut Read) {
    let forever = ClaimTerms::MAX_RETENTION.as_micros();
    let is_canary = |call: &&CallRecord| matches!(call.ask, CallRequest::Claim { retention, .. } if u128::from(retention) >= forever);
    let canaries: BTreeSet<String> = all
        .history
        .calls
        .iter()
        .filter(is_canary)
        .map(|call| call.key.clone())
        .collect();
    all.history
        .calls
        .retain(|call| !canaries.contains(&call.key));
}

/// The keys that expire within a round.
fn expiring(calls: &[CallRecord]) -> BTreeSet<String> {
    let short = |call: &&CallRecord| matches!(call.ask, CallRequest::Claim { retention, .. } if retention < 60_000_000);
    calls
        .iter()
        .filter(short)
        .map(|call| call.key.clone())
        .collect()
}

/// Converts the times of calls to the store's clock. A call during a jump may have been before or
/// after it.
fn shift(calls: &mut [CallRecord], jumps: &[ClockJump]) {
    if jumps.is_empty() {
        return;
    }
    // Whole days ahead, so that no clock starts below zero.
    let far = 10_i64 * 24 * 3600 * 1_000_000;
    for call in calls {
        let (mut least, mut most) = (far, far);
        for ClockJump { from, to, micros } in jumps {
            if call.start > *to {
                least += micros;
                most += micros;
            } else if call.end.is_none_or(|end| end >= *from) {
                least += micros.min(&0);
                most += micros.max(&0);
            }
        }
        call.began = call.began.saturating_add_signed(least);
        call.ended = call.ended.map(|ended| ended.saturating_add_signed(most));
    }
}

/// A process that was stopped between its look at the clock and its effect can't notice it (see
/// `docs/guarantees.md`).
fn is_of_a_pause(violation: &Violation, windows: &Windows) -> bool {
    let [effect] = &*violation.effects else {
        return false;
    };
    let instant = 50_000_000;
    matches!(violation.invariant, "I4" | "I9")
        && windows.pauses.iter().any(|(client, _, to)| {
            *client == effect.client && (*to..*to + instant).contains(&effect.start)
        })
}

/// A clock set forward ends a lease whose owner can't notice it before its effect; another owner
/// takes over and finishes first. The jump must lie between the winning claim and its effect.
fn is_of_a_jump(violation: &Violation, calls: &[CallRecord], windows: &Windows) -> bool {
    let [effect] = &*violation.effects else {
        return false;
    };
    let is_its_claim = |call: &CallRecord| {
        call.key == violation.key
            && matches!(call.reply, CallReply::Won { fence, .. } if fence == effect.fence)
    };
    let claim = calls.iter().find(|call| is_its_claim(call));
    violation.invariant == "I9"
        && claim.is_some_and(|claim| {
            let is_between = |jump: &ClockJump| {
                jump.micros > 0 && claim.start <= jump.to && effect.start >= jump.from
            };
            windows.jumps.iter().any(is_between)
        })
}

/// A store that repeats a settlement after a lost reply gets *Lost* if the record has expired
/// meanwhile. Only a call that took longer than the record lives is excused.
fn is_of_a_resend(violation: &Violation) -> bool {
    let [settle, shown] = &*violation.calls else {
        return false;
    };
    let CallRequest::Claim { retention, .. } = shown.ask else {
        return false;
    };
    let took = settle.ended.map(|ended| ended.saturating_sub(settle.began));
    violation.invariant == "I3"
        && matches!(settle.ask, CallRequest::Settle { .. })
        && settle.reply == CallReply::Lost
        && took.is_some_and(|took| took >= retention)
}

/// Whether a replica took over between the first response to a caller and the last effect or
/// response of the violation.
fn is_across(violation: &Violation, all: &Read, failovers: &[(u64, u64)]) -> bool {
    let answers = || {
        let is_answer = |what| matches!(what, CallerOutcome::Answer(_));
        let told = all.reports.iter().filter(|told| told.key == violation.key);
        told.filter(move |told| is_answer(told.what))
    };
    let first = answers().map(|told| told.start).min().unwrap_or(u64::MAX);
    let effects = violation.effects.iter().map(|effect| effect.start);
    let last = answers().map(|told| told.end).chain(effects).max();
    let last = last.unwrap_or(u64::MAX);
    violation.can_be_of_a_loss()
        && failovers
            .iter()
            .any(|(from, to)| first < *to && last > *from)
}

/// The history of one key, in order.
fn story(key: &str, all: &Read, windows: &Windows) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for (from, to) in &windows.failovers {
        lines.push((*from, format!("[{from}–{to}] a replica takes over")));
    }
    for call in all.history.calls.iter().filter(|call| call.key == key) {
        lines.push((call.start, call.to_string()));
    }
    for effect in all
        .history
        .effects
        .iter()
        .filter(|effect| effect.key == key)
    {
        lines.push((effect.start, effect.to_string()));
    }
    for told in all.reports.iter().filter(|told| told.key == key) {
        let line = format!(
            "[{}–{}] client {}: told {:?}",
            told.start, told.end, told.client, told.what
        );
        lines.push((told.start, line));
    }
    lines.sort();
    let first = lines.first().map_or(0, |(start, _)| *start);
    let mut text = format!("ticks are nanoseconds; the first is {first}\n");
    for (_, line) in lines {
        text += &format!("    {line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use semel_testkit::history::EffectRecord;

    use super::*;

    fn claim(start: u64, end: u64) -> CallRecord {
        CallRecord {
            client: 1,
            key: "k".to_owned(),
            start,
            end: Some(end),
            began: start / 1_000,
            ended: Some(end / 1_000),
            ask: CallRequest::Read,
            reply: CallReply::Seen(None),
        }
    }

    /// An effect after its lease is explained only by a forward jump between the claim and that
    /// effect.
    #[test]
    fn a_jump_explains_the_effect_of_a_lease_that_it_ended() {
        let won = CallRecord {
            reply: CallReply::Won {
                fence: 5,
                token: 1,
                attempt: 1,
                own: true,
                checkpoint: 0,
            },
            ..claim(10, 20)
        };
        let late = |start: u64| Violation {
            invariant: "I9",
            key: "k".to_owned(),
            sentence: String::new(),
            calls: Vec::new(),
            effects: vec![EffectRecord {
                client: 1,
                key: "k".to_owned(),
                fence: 5,
                attempt: 1,
                start,
                began: 0,
                end: None,
            }],
        };
        let explains = |(from, to, by): (u64, u64, i64), start: u64| {
            let windows = Windows {
                jumps: vec![ClockJump::of_seconds(from, to, by)],
                ..Windows::default()
            };
            is_of_a_jump(&late(start), std::slice::from_ref(&won), &windows)
        };
        assert!(explains((15, 25, 3_600), 30));
        assert!(!explains((15, 25, -3_600), 30), "set back");
        assert!(!explains((5, 8, 3_600), 30), "before the claim");
        assert!(!explains((40, 45, 3_600), 30), "after the effect");
    }

    /// Times before a jump stay, times after it are shifted, and times during it may be either.
    #[test]
    fn a_jump_moves_what_comes_after_it() {
        let second = 1_000_000_000;
        let jumps = [ClockJump::of_seconds(10 * second, 12 * second, -3_600)];
        let far = 10 * 24 * 3_600 * 1_000_000_u64;
        let mut calls = [
            claim(second, 2 * second),
            claim(13 * second, 14 * second),
            claim(11 * second, 14 * second),
            claim(9 * second, 11 * second),
            claim(9 * second, 14 * second),
        ];
        shift(&mut calls, &jumps);
        let times = calls.each_ref().map(|call| {
            let of = |time: u64| i128::from(time) - i128::from(far);
            (of(call.began), call.ended.map(of))
        });
        let hour = 3_600_000_000;
        assert_eq!(times[0], (1_000_000, Some(2_000_000)));
        assert_eq!(times[1], (13_000_000 - hour, Some(14_000_000 - hour)));
        assert_eq!(times[2], (11_000_000 - hour, Some(14_000_000)));
        assert_eq!(times[3], (9_000_000 - hour, Some(11_000_000)));
        assert_eq!(times[4], (9_000_000 - hour, Some(14_000_000)));
    }
}
