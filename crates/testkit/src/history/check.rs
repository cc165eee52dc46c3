//! Checks a history against the invariants.

use std::collections::BTreeSet;
use std::time::Duration;

use super::clocks::Clocks;
use super::event::History;
use super::order::{self, Order};
use super::rules;
use super::view::{Endings, View};
use super::violation::Violation;

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
