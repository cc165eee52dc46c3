//! The properties that must hold at every state of a migration.

use semel_core::{CrashPolicy, State};

use super::Moving;
use super::faults::{Fault, kept};
use super::store::{answered, is_over};
use super::world::{Uses, World};

/// A named condition on states.
pub(in super::super) struct Property {
    pub(in super::super) name: &'static str,
    condition: fn(&Moving, &World) -> bool,
}

impl Property {
    pub(in super::super) fn holds(&self, model: &Moving, world: &World) -> bool {
        (self.condition)(model, world)
    }
}

const fn property(name: &'static str, condition: fn(&Moving, &World) -> bool) -> Property {
    Property { name, condition }
}

/// Goes through the properties at a state. Whether all of them hold.
pub(super) fn visit(model: &Moving, world: &World) -> bool {
    let broken = ALWAYS.iter().enumerate().fold(0, |bits, (at, property)| {
        bits | u64::from(!property.holds(model, world)) << at
    });
    model.findings.note_broken(broken);
    model.wanted.map_or(broken, |wanted| broken & 1 << wanted) == 0
}

/// What must hold at every state.
pub(in super::super) const ALWAYS: &[Property] = &[
    property("moving: I1 fences only grow", |_, w| kept(w, Fault::Fences)),
    property("moving: I2 an answer never changes", |_, w| {
        kept(w, Fault::AnswerChanged)
    }),
    property(
        "moving: I2 all callers of one life get one answer",
        |_, w| kept(w, Fault::Answers),
    ),
    property(
        "moving: I2 no effect starts once its answer was given",
        |_, w| kept(w, Fault::Answered),
    ),
    property(
        "moving: I4 an effect starts under a live lease in every store of its node",
        |_, w| kept(w, Fault::StartWithoutLease),
    ),
    property("moving: hold: at most one effect", |_, w| {
        kept(w, Fault::HoldTwice)
    }),
    property("moving: takeover: no more effects than attempts", |_, w| {
        kept(w, Fault::TooManyStarts)
    }),
    property(
        "P43 restored as it is, once, over nothing that counts",
        |_, w| kept(w, Fault::Restored),
    ),
    property(
        "P43 the copier finds no two stores that disagree",
        |_, w| kept(w, Fault::Conflict),
    ),
    property(
        "P43 what was answered is known to the new store alone",
        known_after,
    ),
    property(
        "P43 what is in doubt is not free in the new store",
        doubt_after,
    ),
    property("P44 a record names no body that was not written", |_, w| {
        kept(w, Fault::BodyAfter)
    }),
    property(
        "P44 a body is given as it was, or told as not kept",
        |_, w| kept(w, Fault::Body),
    ),
];

/// The old store can go.
fn is_moved(world: &World) -> bool {
    world.clients.iter().all(|client| client.uses == Uses::New)
}

fn known_after(model: &Moving, world: &World) -> bool {
    let known = || {
        let row = model.live(world, 1);
        row.is_some_and(|row| is_over(row.state) && answered(&row) == world.ghost.given)
    };
    !is_moved(world) || world.ghost.given == 0 || known()
}

fn doubt_after(model: &Moving, world: &World) -> bool {
    if !is_moved(world) || world.ghost.hold_run == 0 {
        return true;
    }
    model.live(world, 1).is_some_and(|row| match row.state {
        State::Released => false,
        State::Running => row.crash == CrashPolicy::Hold,
        _ => true,
    })
}
