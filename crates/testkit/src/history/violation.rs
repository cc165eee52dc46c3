//! [`Violation`]: what a check of a history finds.

use std::fmt;

use super::event::{CallRecord, EffectRecord};

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
