//! The verdict on a history.

use std::fmt;
use std::time::Duration;

use super::event::{Call, Effect, History};
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
    pub calls: Vec<Call>,
    /// The effects that show it.
    pub effects: Vec<Effect>,
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
    let endings = Endings::of(history);
    let slack = u64::try_from(slack.as_micros()).unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for view in View::each(history, slack) {
        for rule in rules::ALL {
            rule(&view, &endings, &mut found);
        }
    }
    found
}
