//! What a round has shown: the histories of all its processes, put together and decided key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use semel::core::Terms;
use semel_testkit::history::callers::{self, Outcome, Reading};
use semel_testkit::history::{
    Ask, Call, Clocks, Read, Reply, Violation, check_with_losses, read_lines,
};

use crate::worker::doors::{self, Doors};
use crate::{load, resends};

/// When something happened that the rules must know of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    /// A client was stopped from … to ….
    pub(crate) pauses: Vec<(u32, u64, u64)>,
    /// The store's clock was set by so many seconds, at some moment from … to ….
    pub(crate) jumps: Vec<(u64, u64, i64)>,
    /// A replica took over that may not have had everything, from … to ….
    pub(crate) failovers: Vec<(u64, u64)>,
}

/// How strictly a store is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strictness {
    /// How far the store's clock and the history's may be apart over a lease.
    pub(crate) slack: Duration,
    /// For how long the store may put off the end of a lease.
    pub(crate) margin: Duration,
    /// Whether the store's guarantee is that a failover may lose what was acknowledged.
    pub(crate) may_lose: bool,
}

/// What a round has shown.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What callers asked for.
    pub(crate) operations: u64,
    /// Those that got the answer, or the final failure.
    pub(crate) answered: u64,
    /// Calls to the store.
    pub(crate) calls: u64,
    pub(crate) effects: u64,
    pub(crate) keys: u64,
    /// Keys that some caller found in doubt.
    pub(crate) doubts: u64,
    /// Takeovers that were won.
    pub(crate) takeovers: u64,
    /// Keys that expired and were won anew.
    pub(crate) expired: u64,
    /// Keys whose acknowledged record a failover lost, where the guarantee says that it may.
    pub(crate) lost_as_stated: u64,
    /// How many of them came through each door.
    pub(crate) doors: Doors,
    /// What can't be, with all that happened to the key.
    pub(crate) violations: Vec<(Violation, String)>,
}

/// Reads the files of a round and decides.
pub(crate) fn judge(files: &[PathBuf], windows: &Windows, how: Strictness) -> Result<Verdict> {
    let mut all = Read::default();
    for file in files {
        // A worker that was killed before it had a store wrote nothing.
        let Ok(text) = File::open(file) else { continue };
        let read = read_lines(BufReader::new(text));
        all.merge(read.with_context(|| format!("{}", file.display()))?);
    }
    leave_canaries_out(&mut all);
    let mut verdict = count(&all);
    resends::write_down(&mut all.history);
    shift(&mut all.history.calls, &windows.jumps);
    if !windows.jumps.is_empty() {
        // When an effect may begin is told by its owner's clock (I4), and calls are by the store's now.
        all.history
            .effects
            .iter_mut()
            .for_each(|effect| effect.began = 0);
    }
    let expiring: BTreeSet<String> = expiring(&all.history.calls);
    if !windows.jumps.is_empty() {
        // A clock that is set back makes what has expired live again, where it was not swept yet: what such keys show
        // in such a round is not decided.
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
    found.extend(load::check(&all));
    verdict.lost_as_stated = checked.lost.len() as u64;
    all.told.retain(|told| !expiring.contains(&told.key));
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
    let told = callers::check(&all.told, &effects, reading).into_iter();
    // What callers were told is of a record that was lost, where that is shown for this key.
    found.extend(told.filter(|violation| {
        let is_lost = checked.lost.contains(&violation.key);
        !(is_lost && is_across(violation, &all, failovers))
    }));
    found.retain(|violation| !is_of_a_pause(violation, windows) && !is_of_a_resend(violation));
    found.retain(|violation| !is_of_a_jump(violation, &all.history.calls, windows));
    // A busy machine stops a process for as long as the shortest leases last, between its look at the clock and its effect.
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
            move |call| matches!(call.reply, Reply::Won { attempt, .. } if attempt >= least),
        );
        won.count() as u64
    };
    let doubtful = all.told.iter().filter(|told| told.what == Outcome::InDoubt);
    let keys: BTreeSet<&str> = all.told.iter().map(|told| &*told.key).collect();
    let tiny = expiring(&all.history.calls);
    let mut lives: BTreeMap<&str, u64> = BTreeMap::new();
    for call in all
        .history
        .calls
        .iter()
        .filter(|call| tiny.contains(&call.key))
    {
        if matches!(call.reply, Reply::Won { attempt: 1, .. }) {
            *lives.entry(&call.key).or_default() += 1;
        }
    }
    Verdict {
        operations: all.told.len() as u64,
        answered: all
            .told
            .iter()
            .filter(|told| matches!(told.what, Outcome::Answer(_)))
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

/// The record by which processes find out that they share a secret is older than the round: its history is elsewhere.
fn leave_canaries_out(all: &mut Read) {
    let forever = Terms::MAX_RETENTION.as_micros();
    let is_canary = |call: &&Call| matches!(call.ask, Ask::Claim { retention, .. } if u128::from(retention) >= forever);
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
fn expiring(calls: &[Call]) -> BTreeSet<String> {
    let short =
        |call: &&Call| matches!(call.ask, Ask::Claim { retention, .. } if retention < 60_000_000);
    calls
        .iter()
        .filter(short)
        .map(|call| call.key.clone())
        .collect()
}

/// Puts the times of calls on the store's clock. A call during a jump may have been before or after it.
fn shift(calls: &mut [Call], jumps: &[(u64, u64, i64)]) {
    if jumps.is_empty() {
        return;
    }
    // Whole days ahead, so that no clock is set to before its start.
    let far = 10_i64 * 24 * 3600;
    for call in calls {
        let (mut least, mut most) = (far, far);
        for (from, to, seconds) in jumps {
            if call.start > *to {
                least += seconds;
            } else if call.start > *from {
                least += seconds.min(&0);
            }
            match call.end {
                Some(end) if end < *from => {}
                Some(end) if end > *to => most += seconds,
                _ => most += seconds.max(&0),
            }
        }
        let on_its_clock = |time: u64, by: i64| time.saturating_add_signed(by * 1_000_000);
        call.began = on_its_clock(call.began, least);
        call.ended = call.ended.map(|ended| on_its_clock(ended, most));
    }
}

/// A process that was stopped between its look at the clock and its effect can't know it: what `docs/guarantees.md`
/// says of a paused process.
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

/// A clock that is set forward ends a lease whose owner has not begun yet, and can't know it: another takes over, and is done
/// first. The clock was set between the claim that won this very lease and its effect.
fn is_of_a_jump(violation: &Violation, calls: &[Call], windows: &Windows) -> bool {
    let [effect] = &*violation.effects else {
        return false;
    };
    let is_its_claim = |call: &Call| {
        call.key == violation.key
            && matches!(call.reply, Reply::Won { fence, .. } if fence == effect.fence)
    };
    let claim = calls.iter().find(|call| is_its_claim(call));
    violation.invariant == "I9"
        && claim.is_some_and(|claim| {
            let is_between = |(from, to, by): &(u64, u64, i64)| {
                *by > 0 && claim.start <= *to && effect.start >= *from
            };
            windows.jumps.iter().any(is_between)
        })
}

/// A store that sends a settlement again by itself, when its reply was lost, is told *Lost* where the record has expired
/// in between: what it wrote at first was shown until then. Only a call that took longer than the record lives can be
/// such a one.
fn is_of_a_resend(violation: &Violation) -> bool {
    let [settle, shown] = &*violation.calls else {
        return false;
    };
    let Ask::Claim { retention, .. } = shown.ask else {
        return false;
    };
    let took = settle.ended.map(|ended| ended.saturating_sub(settle.began));
    violation.invariant == "I3"
        && matches!(settle.ask, Ask::Settle { .. })
        && settle.reply == Reply::Lost
        && took.is_some_and(|took| took >= retention)
}

/// Whether a replica took over after a caller was first told an answer, and before the last effect or answer that shows the violation.
fn is_across(violation: &Violation, all: &Read, failovers: &[(u64, u64)]) -> bool {
    let answers = || {
        let is_answer = |what| matches!(what, Outcome::Answer(_));
        let told = all.told.iter().filter(|told| told.key == violation.key);
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

/// All that happened to one key, in order: the minimal history.
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
    for told in all.told.iter().filter(|told| told.key == key) {
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
    use semel_testkit::history::Effect;

    use super::*;

    fn claim(start: u64, end: u64) -> Call {
        Call {
            client: 1,
            key: "k".to_owned(),
            start,
            end: Some(end),
            began: start / 1_000,
            ended: Some(end / 1_000),
            ask: Ask::Read,
            reply: Reply::Seen(None),
        }
    }

    /// Only a clock that is set forward, and only between a claim and its own effect, explains an effect that comes too late.
    #[test]
    fn a_jump_explains_the_effect_of_a_lease_that_it_ended() {
        let won = Call {
            reply: Reply::Won {
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
            effects: vec![Effect {
                client: 1,
                key: "k".to_owned(),
                fence: 5,
                attempt: 1,
                start,
                began: 0,
                end: None,
            }],
        };
        let explains = |jump: (u64, u64, i64), start: u64| {
            let windows = Windows {
                jumps: vec![jump],
                ..Windows::default()
            };
            is_of_a_jump(&late(start), std::slice::from_ref(&won), &windows)
        };
        assert!(explains((15, 25, 3_600), 30));
        assert!(!explains((15, 25, -3_600), 30), "set back");
        assert!(!explains((5, 8, 3_600), 30), "before the claim");
        assert!(!explains((40, 45, 3_600), 30), "after the effect");
    }

    /// What is before the jump stays, what is after it is moved, and what is during it may have been both.
    #[test]
    fn a_jump_moves_what_comes_after_it() {
        let second = 1_000_000_000;
        let jumps = [(10 * second, 12 * second, -3_600_i64)];
        let far = 10 * 24 * 3_600 * 1_000_000_u64;
        let mut calls = [
            claim(second, 2 * second),
            claim(13 * second, 14 * second),
            claim(11 * second, 14 * second),
            claim(9 * second, 11 * second),
        ];
        shift(&mut calls, &jumps);
        let times = calls.each_ref().map(|call| {
            let of = |time: u64| i128::from(time) - i128::from(far);
            (of(call.began), call.ended.map(of))
        });
        let hour = 3_600_000_000;
        assert_eq!(times[0], (1_000_000, Some(2_000_000)));
        assert_eq!(times[1], (13_000_000 - hour, Some(14_000_000 - hour)));
        assert_eq!(times[2], (11_000_000 - hour, Some(14_000_000 - hour)));
        assert_eq!(
            times[3],
            (9_000_000, Some(11_000_000)),
            "it may have been before"
        );
    }
}
