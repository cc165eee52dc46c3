//! The rules that a step can break, as one bit each in the state.

use super::world::Ghost;

/// A rule that a step has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fault {
    Fences,
    AnswerChanged,
    StaleLease,
    LateStart,
    StartWithoutLease,
    Takeover,
    Resend,
    Mismatch,
    Expired,
    Swept,
    Release,
    HoldTwice,
    TooManyStarts,
    Checkpoint,
    LateSettle,
    SettledOnce,
    Resolution,
    StoredPolicy,
}

impl Ghost {
    /// Whether no step has broken the rule.
    pub(super) const fn kept(&self, fault: Fault) -> bool {
        self.faults & (1 << fault as u8) == 0
    }

    /// Remembers a broken rule, unless it `held`.
    pub(super) fn require(&mut self, held: bool, fault: Fault) {
        if !held {
            self.faults |= 1 << fault as u8;
        }
    }
}
