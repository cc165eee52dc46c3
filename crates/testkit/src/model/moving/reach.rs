//! The states that a migration must be able to reach, so that no property holds vacuously.

use super::Moving;
use super::world::{Call, Uses};

/// Something that happened on a step. It is noted beside the state, so that it makes no state of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Event {
    Effect(Uses),
    Takeover(Uses),
    Replay(Uses),
    Doubt(Uses),
    GivenBack,
    WrittenBack,
    DoubtTakenOver,
    DoubtEnded,
    DiedBetween,
    SettledAgain,
    RestoredAgain,
    RestoreKept,
    RestoreExpired,
    RestoredOverReleased,
    DoubtBrought,
    Mended,
    RunningElsewhere,
    CopierDied,
    Stray(Call),
    Moved,
    DoubtMoved,
    AnswerMoved,
    BodyGone,
    BodyChanged,
    BodyKeptInRecord,
    BodyUnanswered,
}

type Outcome = (&'static str, fn(Event) -> bool);

/// The outcomes that must be reached, unless a space says that one lies beyond its bounds.
pub(in super::super) const SOMETIMES: &[Outcome] = &[
    ("an effect by a node of the old store", |e| {
        e == Event::Effect(Uses::Old)
    }),
    ("an effect by a node of old and new", |e| {
        e == Event::Effect(Uses::OldAndNew)
    }),
    ("an effect by a node of new and old", |e| {
        e == Event::Effect(Uses::NewAndOld)
    }),
    ("an effect by a node of the new store", |e| {
        e == Event::Effect(Uses::New)
    }),
    ("a takeover by a node of old and new", |e| {
        e == Event::Takeover(Uses::OldAndNew)
    }),
    ("a takeover by a node of new and old", |e| {
        e == Event::Takeover(Uses::NewAndOld)
    }),
    ("a takeover by a node of the new store", |e| {
        e == Event::Takeover(Uses::New)
    }),
    ("a replay by a node of old and new", |e| {
        e == Event::Replay(Uses::OldAndNew)
    }),
    ("a replay by a node of new and old", |e| {
        e == Event::Replay(Uses::NewAndOld)
    }),
    ("a replay by a node of the new store", |e| {
        e == Event::Replay(Uses::New)
    }),
    ("a doubt told by a node of old and new", |e| {
        e == Event::Doubt(Uses::OldAndNew)
    }),
    ("a doubt told by a node of new and old", |e| {
        e == Event::Doubt(Uses::NewAndOld)
    }),
    ("a doubt told by a node of the new store", |e| {
        e == Event::Doubt(Uses::New)
    }),
    ("won in one store, refused in the other, given back", |e| {
        e == Event::GivenBack
    }),
    (
        "an answer of the second store is written to the first",
        |e| e == Event::WrittenBack,
    ),
    ("a doubt of the second store is written to the first", |e| {
        e == Event::DoubtTakenOver
    }),
    ("a doubt is ended by what the other store knows", |e| {
        e == Event::DoubtEnded
    }),
    ("an owner dies between its two settlements", |e| {
        e == Event::DiedBetween
    }),
    ("a settlement sent again in a move is done", |e| {
        e == Event::SettledAgain
    }),
    ("a restore sent again is written", |e| {
        e == Event::RestoredAgain
    }),
    ("a restore finds something that counts", |e| {
        e == Event::RestoreKept
    }),
    ("a restore comes after the record expired", |e| {
        e == Event::RestoreExpired
    }),
    ("a restore over a released record", |e| {
        e == Event::RestoredOverReleased
    }),
    ("a doubt is brought over", |e| e == Event::DoubtBrought),
    ("the copier settles what an owner left", |e| {
        e == Event::Mended
    }),
    ("the copier finds a lease of the old store alone", |e| {
        e == Event::RunningElsewhere
    }),
    ("the copier dies", |e| e == Event::CopierDied),
    ("a restore lands after the copier's death", |e| {
        matches!(e, Event::Stray(Call::Restore { .. }))
    }),
    ("a settlement lands after its sender went on", |e| {
        matches!(e, Event::Stray(Call::Settle { .. }))
    }),
    ("a claim lands after its sender went on", |e| {
        matches!(e, Event::Stray(Call::Claim { .. }))
    }),
    ("the move ends", |e| e == Event::Moved),
    ("the move ends with a doubt", |e| e == Event::DoubtMoved),
    ("the move ends with an answer", |e| e == Event::AnswerMoved),
    ("a body that is gone is told as not kept", |e| {
        e == Event::BodyGone
    }),
    ("a body that was changed is told as not kept", |e| {
        e == Event::BodyChanged
    }),
    ("a body that is taken by nobody stays in the record", |e| {
        e == Event::BodyKeptInRecord
    }),
    ("a body doesn't come, and nothing runs", |e| {
        e == Event::BodyUnanswered
    }),
    ("a replay with its body elsewhere", |e| {
        e == Event::Replay(Uses::Spill)
    }),
];

impl Moving {
    pub(in super::super) fn event(&self, event: Event) {
        let fits = |(at, (_, is)): (usize, &Outcome)| is(event).then_some(1 << at);
        let bits = SOMETIMES
            .iter()
            .enumerate()
            .filter_map(fits)
            .fold(0, |bits, bit| bits | bit);
        self.findings.note_reached(bits);
    }

    pub(in super::super) fn event_if(&self, happened: bool, event: Event) {
        if happened {
            self.event(event);
        }
    }
}
