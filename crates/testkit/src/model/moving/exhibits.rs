//! For every broken rule of a migration: the property that detects it, in a small space.

use super::super::breaks::Break;
use super::config::MovingConfig;
use super::spaces::{ATTEMPTS, BODIES, CALM, COPIER, TAKEOVER, TO_NEW};
use super::world::Uses;

type ExhibitRow = (Break, &'static str, MovingConfig);

/// All of them. Every property of a move is broken by some rule.
pub(in super::super) const fn exhibits() -> &'static [ExhibitRow] {
    SHOWN
}

const I1: &str = "moving: I1 fences only grow";
const I2: &str = "moving: I2 an answer never changes";
const ONE_ANSWER: &str = "moving: I2 all callers of one life get one answer";
const ONCE: &str = "moving: I2 no effect starts once its answer was given";
const I4: &str = "moving: I4 an effect starts under a live lease in every store of its node";
const AT_MOST_ONE: &str = "moving: hold: at most one effect";
const RUNS: &str = "moving: takeover: no more effects than attempts";
const RESTORED: &str = "P43 restored as it is, once, over nothing that counts";
const AGREE: &str = "P43 the copier finds no two stores that disagree";
const KNOWN: &str = "P43 what was answered is known to the new store alone";
const DOUBT: &str = "P43 what is in doubt is not free in the new store";
const BODY_FIRST: &str = "P44 a record names no body that was not written";
const BODY: &str = "P44 a body is given as it was, or told as not kept";

/// No time passes.
const AT_ONCE: MovingConfig = MovingConfig { horizon: 0, ..CALM };

const BOTH: MovingConfig = MovingConfig {
    begins: Uses::OldAndNew,
    ..AT_ONCE
};

const TAKEN_OVER: MovingConfig = MovingConfig {
    retries: 0,
    ..TAKEOVER
};

const QUIET: MovingConfig = MovingConfig {
    losses: 0,
    crashes: 0,
    ..BODIES
};

const SHOWN: &[ExhibitRow] = &[
    (Break::RestoreOverRunning, RESTORED, AT_ONCE),
    (Break::RestoreOverAnswer, RESTORED, AT_ONCE),
    (Break::RestoreOverAnswer, I2, AT_ONCE),
    (
        Break::RestoreLowersFence,
        I1,
        MovingConfig { horizon: 1, ..CALM },
    ),
    (
        Break::RestoreTwice,
        RESTORED,
        MovingConfig {
            horizon: 0,
            asks: 1,
            ..COPIER
        },
    ),
    (Break::MirrorAsksOne, I4, BOTH),
    (Break::MirrorAsksOne, ONE_ANSWER, BOTH),
    (
        Break::MirrorIgnoresAnswer,
        ONCE,
        MovingConfig {
            crashes: 0,
            runs: 1,
            ..TO_NEW
        },
    ),
    (Break::SecondSettledFirst, AGREE, TAKEN_OVER),
    (Break::CopyAnswersOnly, DOUBT, COPIER),
    (Break::CopyAnswersOnly, AT_MOST_ONE, COPIER),
    (
        Break::CopyLeftOut,
        KNOWN,
        MovingConfig { runs: 0, ..AT_ONCE },
    ),
    (
        Break::CopyLeftOut,
        ONCE,
        MovingConfig { runs: 0, ..AT_ONCE },
    ),
    (
        Break::LastCopyLeftOut,
        KNOWN,
        MovingConfig {
            horizon: 0,
            runs: 1,
            ..TO_NEW
        },
    ),
    (Break::StepLeftOut, AGREE, TAKEN_OVER),
    (
        Break::RolloutsOverlap,
        ONCE,
        MovingConfig { runs: 0, ..AT_ONCE },
    ),
    (Break::TakeoverPastAttempts, RUNS, ATTEMPTS),
    (Break::BodyAfterSettlement, BODY_FIRST, QUIET),
    (Break::BodyGoneIsAbsent, ONCE, QUIET),
    (Break::BodyUnchecked, BODY, QUIET),
];
