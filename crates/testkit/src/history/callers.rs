//! Rules for what callers were told. They hold for a library, a sidecar or another layer alike.
//!
//! They need no history of the store: every caller of a key must get the same final answer.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::event::{CallRecord, CallReply, CallRequest, EffectRecord, History, KeyEnding};
use super::view::may_have_happened;
use super::violation::Violation;

/// What one caller was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerReport {
    /// Who asked.
    pub client: u32,
    /// For which key.
    pub key: String,
    /// Mark of the payload.
    pub payload: u64,
    /// When it asked.
    pub start: u64,
    /// When it was told.
    pub end: u64,
    /// What it was told.
    pub what: CallerOutcome,
}

/// The outcome of a call for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallerOutcome {
    /// The answer, or the final failure, by its mark.
    Answer(KeyEnding),
    /// Nobody knows whether it happened.
    InDoubt,
    /// The key was used with another payload.
    Mismatch,
    /// Another runs it.
    Busy,
    /// Nothing was started: the store gave no answer.
    NotStarted,
    /// It ran, and isn't recorded, or failed: asking again is the way to know.
    AskAgain,
}

/// What a caller knows for good after that.
#[must_use]
pub const fn is_final(outcome: CallerOutcome) -> bool {
    matches!(
        outcome,
        CallerOutcome::Answer(_) | CallerOutcome::InDoubt | CallerOutcome::Mismatch
    )
}

/// How the rules are to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading<'h> {
    /// The calls to the store, where they are known: then an answer must have been recorded before
    /// it is told (P33). What comes after an operator has sent a key's deletion is of another life
    /// of it, and the owner of a lease that an operator unlocked may begin late.
    pub store: Option<&'h History>,
    /// Whether no crash and no lapse is about: then a key has one effect.
    pub undisturbed: bool,
}

/// What in `reports` and `effects` can't be: for keys that don't expire within the history, and
/// that nobody deletes unless the store's history says so.
#[must_use]
pub fn check(
    reports: &[CallerReport],
    effects: &[EffectRecord],
    reading: Reading<'_>,
) -> Vec<Violation> {
    let mut keys: BTreeMap<&str, Key<'_>> = BTreeMap::new();
    for one in reports {
        keys.entry(&one.key).or_default().reports.push(one);
    }
    for effect in effects {
        keys.entry(&effect.key).or_default().effects.push(effect);
    }
    let recorded = reading.store.map(recorded);
    let operated = reading.store.map(OperatorActions::of).unwrap_or_default();
    let mut found = Vec::new();
    for (key, of) in &mut keys {
        let mut wrong = |invariant, sentence: String, effects: Vec<&EffectRecord>| {
            found.push(Violation {
                invariant,
                key: (*key).to_owned(),
                sentence,
                calls: Vec::new(),
                effects: effects.into_iter().cloned().collect(),
            });
        };
        if let Some(recorded) = &recorded {
            of.answers_are_recorded(recorded, &mut wrong);
        }
        operated.leave_later_lives_out(key, of);
        of.one_answer(&mut wrong);
        of.nothing_after_the_answer(&operated, &mut wrong);
        of.one_payload(&mut wrong);
        if reading.undisturbed && of.effects.len() > 1 {
            let sentence = format!("done {} times, though nobody vanished", of.effects.len());
            wrong("I1", sentence, of.effects.clone());
        }
    }
    found
}

/// Every answer that may have been recorded, with the earliest moment at which it may have been.
fn recorded(history: &History) -> BTreeMap<(&str, u64), u64> {
    let mut recorded = BTreeMap::new();
    for call in &history.calls {
        let (CallRequest::Settle { ending, .. } | CallRequest::Resolve { ending, .. }) = call.ask
        else {
            continue;
        };
        let refused = matches!(
            call.reply,
            CallReply::Lost | CallReply::NotInDoubt | CallReply::Failed { definite: true }
        );
        if let (Some(mark), false) = (mark_of(ending), refused) {
            let first = recorded.entry((&*call.key, mark)).or_insert(call.start);
            *first = (*first).min(call.start);
        }
    }
    recorded
}

/// What operators did to keys.
#[derive(Default)]
struct OperatorActions<'h> {
    /// When the first deletion of a key was sent that may have happened.
    deleted: BTreeMap<&'h str, u64>,
    /// The leases that operators may have ended in their owners' names.
    unlocked: BTreeSet<(&'h str, u64)>,
}

impl<'h> OperatorActions<'h> {
    fn of(history: &'h History) -> Self {
        let mut this = Self::default();
        let happened = |call: &&CallRecord| may_have_happened(call);
        for call in history.calls.iter().filter(happened) {
            match call.ask {
                CallRequest::Delete => {
                    let first = this.deleted.entry(&call.key).or_insert(call.start);
                    *first = (*first).min(call.start);
                }
                CallRequest::Settle { fence, .. } if call.is_operators() => {
                    this.unlocked.insert((&call.key, fence));
                }
                _ => {}
            }
        }
        this
    }

    /// Only what was told and begun before the first deletion is of the key's first life for
    /// certain.
    fn leave_later_lives_out(&self, key: &str, of: &mut Key<'_>) {
        if let Some(deleted) = self.deleted.get(key) {
            of.reports.retain(|report| report.end < *deleted);
            of.effects.retain(|effect| effect.start < *deleted);
        }
    }

    fn is_unlocked(&self, effect: &EffectRecord) -> bool {
        self.unlocked.contains(&(&*effect.key, effect.fence))
    }
}

const fn mark_of(ending: KeyEnding) -> Option<u64> {
    match ending {
        KeyEnding::Completed(mark) | KeyEnding::Failed(mark) => Some(mark),
        _ => None,
    }
}

#[derive(Default)]
struct Key<'h> {
    reports: Vec<&'h CallerReport>,
    effects: Vec<&'h EffectRecord>,
}

type ReportViolation<'a, 'h> = dyn FnMut(&'static str, String, Vec<&'h EffectRecord>) + 'a;

impl<'h> Key<'h> {
    fn answers(&self) -> impl Iterator<Item = (&'h CallerReport, KeyEnding)> {
        self.reports.iter().filter_map(|report| match report.what {
            CallerOutcome::Answer(ending) => Some((*report, ending)),
            _ => None,
        })
    }

    /// I2: all are told the same.
    fn one_answer(&self, wrong: &mut ReportViolation<'_, 'h>) {
        let different: Vec<KeyEnding> = self.answers().map(|(_, ending)| ending).collect();
        if let Some(other) = different.iter().find(|ending| **ending != different[0]) {
            let (first, whom) = (different[0], different.len());
            let sentence = format!("{whom} callers were told {first:?} and {other:?}");
            wrong("I2", sentence, self.effects.clone());
        }
    }

    /// I2, I9: once somebody has the answer, nothing is done any more, but by an owner whose lease
    /// an operator took away.
    fn nothing_after_the_answer(
        &self,
        operated: &OperatorActions<'_>,
        wrong: &mut ReportViolation<'_, 'h>,
    ) {
        let Some(first) = self.answers().map(|(report, _)| report.end).min() else {
            return;
        };
        let is_late =
            |effect: &&&EffectRecord| effect.start > first && !operated.is_unlocked(effect);
        if let Some(late) = self.effects.iter().find(is_late) {
            let sentence = format!("a caller had the answer at {first}, and it was done again");
            wrong("I9", sentence, vec![late]);
        }
    }

    /// I7: an answer is for one payload.
    fn one_payload(&self, wrong: &mut ReportViolation<'_, 'h>) {
        let payloads: BTreeSet<u64> = self.answers().map(|(report, _)| report.payload).collect();
        if payloads.len() > 1 {
            let sentence = "callers with different payloads were given the answer".to_owned();
            wrong("I7", sentence, self.effects.clone());
        }
    }

    /// P33: what is told as the answer is recorded as the answer.
    fn answers_are_recorded(
        &self,
        recorded: &BTreeMap<(&str, u64), u64>,
        wrong: &mut ReportViolation<'_, 'h>,
    ) {
        for (report, ending) in self.answers() {
            let Some(mark) = mark_of(ending) else {
                continue;
            };
            let at = recorded.get(&(&*report.key, mark));
            if at.is_none_or(|at| *at > report.end) {
                let sentence = format!("client {} was told {ending:?}, unrecorded", report.client);
                wrong("P33", sentence, self.effects.clone());
                return;
            }
        }
    }
}
