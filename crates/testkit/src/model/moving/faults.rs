//! Faults: rules that a step has broken, remembered in the state.

use super::Moving;
use super::world::World;

/// A rule that a step has broken, remembered in the state as one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fault {
    Fences,
    AnswerChanged,
    Answers,
    Answered,
    StartWithoutLease,
    HoldTwice,
    TooManyStarts,
    Restored,
    Conflict,
    BodyAfter,
    Body,
}

impl Moving {
    /// Remembers a broken rule, unless it `held`.
    pub(super) fn require(&self, world: &mut World, held: bool, fault: Fault) {
        if !held {
            world.ghost.faults |= 1 << fault as u8;
        }
    }
}

pub(super) const fn kept(world: &World, fault: Fault) -> bool {
    world.ghost.faults & (1 << fault as u8) == 0
}
