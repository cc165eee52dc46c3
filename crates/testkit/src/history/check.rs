//! Checks a history against the invariants.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::event::{CallRecord, EffectRecord, History};
use super::order::{self, Order};
use super::rules;
use super::view::{Endings, View};

/// Something that a store which keeps the protocol cannot have done.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which invariant of `spec/protocol.md` is broken.
    pub invariant: &'static str,
    /// For which key.
    pub key: String,
    /// What happened, in a sentence.
    pub sentence: String,
    /// The calls that show it, and no others.
    pub calls: Vec<CallRecord>,
    /// The effects that show it.
    pub effects: Vec<EffectRecord>,
}

impl Violation {
    /// Whether a store that went back to an earlier record explains it: something was lost between
    /// the first call that shows it and the last.
    #[must_use]
    pub fn may_be_a_loss(&self, losses: &[(u64, u64)]) -> bool {
        let starts = self.calls.iter().map(|call| call.start);
        let starts = starts.chain(self.effects.iter().map(|effect| effect.start));
        let ends = self.calls.iter().map(|call| call.end.unwrap_or(u64::MAX));
        let ends = ends.chain(
            self.effects
                .iter()
                .map(|effect| effect.end.unwrap_or(u64::MAX)),
        );
        let (first, last) = (starts.min().unwrap_or(0), ends.max().unwrap_or(u64::MAX));
        let is_across = losses.iter().any(|(from, to)| first < *to && last > *from);
        is_across && self.can_be_of_a_loss()
    }

    /// Whether a lost record can explain it at all: not fences that go back, answers of another key
    /// and releases of what had begun.
    #[must_use]
    pub fn can_be_of_a_loss(&self) -> bool {
        !matches!(self.invariant, "I1" | "I8" | "I13")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.key.get(..8).unwrap_or(&self.key);
        writeln!(f, "{} #{short}: {}", self.invariant, self.sentence)?;
        for call in &self.calls {
            writeln!(f, "    {call}")?;
        }
        for effect in &self.effects {
            writeln!(f, "    {effect}")?;
        }
        Ok(())
    }
}

/// What in `history` a store that keeps the protocol cannot have done. Empty where all is well.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    check_with_slack(history, Duration::ZERO)
}

/// Like [`check`], where the clock of the history and the store's may run apart by `slack` over the
/// length of a lease or retention.
#[must_use]
pub fn check_with_slack(history: &History, slack: Duration) -> Vec<Violation> {
    check_with_losses(history, slack, &[]).violations
}

/// What was decided of a history.
#[derive(Debug, Default)]
pub struct CheckResult {
    /// What a store that keeps the protocol cannot have done.
    pub violations: Vec<Violation>,
    /// The keys of which acknowledged writes were lost, each shown: no order explains its calls,
    /// unless the store went back to an earlier record.
    pub lost: BTreeSet<String>,
}

/// How a store's clock is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// How far it and the history's may run apart over the length of a lease or retention.
    pub slack: Duration,
    /// How long after the end of a lease or retention the store may still decide as if it were just
    /// before it: a store that knows the time only roughly ends nothing early that way.
    pub margin: Duration,
}

impl From<Duration> for Clocks {
    fn from(slack: Duration) -> Self {
        Self {
            slack,
            margin: Duration::ZERO,
        }
    }
}

/// Like [`check_with_slack`], where the store may have gone back to an earlier record of a key at
/// some moment within each of `losses`, in ticks: as an asynchronous replica does that takes over.
/// Fences grow all the same.
#[must_use]
pub fn check_with_losses(
    history: &History,
    clocks: impl Into<Clocks>,
    losses: &[(u64, u64)],
) -> CheckResult {
    let endings = Endings::of(history);
    let mut checked = CheckResult::default();
    for view in View::each(history, clocks.into()) {
        let mut found = Vec::new();
        for rule in rules::ALL {
            rule(&view, &endings, &mut found);
        }
        match order::explain(&view, losses) {
            Order::Sound => {}
            Order::Lossy => {
                checked.lost.insert(view.key.to_owned());
                found.retain(|violation| !violation.may_be_a_loss(losses));
            }
            // The other rules say what is wrong in plainer words.
            Order::Impossible(violation) if found.is_empty() => found.push(*violation),
            Order::Impossible(_) => {}
        }
        checked.violations.append(&mut found);
    }
    checked
}
