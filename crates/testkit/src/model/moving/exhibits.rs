//! For every broken rule of a move: the property that notices, in a space small enough to see how.

use super::super::breaks::Break;
use super::config::Config;
use super::spaces::{ATTEMPTS, BODIES, CALM, HOLD, TAKEOVER};

type Shown = (Break, &'static str, Config);

/// All of them. Every property of a move is broken by some rule.
pub(in super::super) const fn exhibits() -> &'static [Shown] {
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

const SHOWN: &[Shown] = &[
    (Break::RestoreOverRunning, RESTORED, TAKEOVER),
    (Break::RestoreOverAnswer, RESTORED, TAKEOVER),
    (Break::RestoreOverAnswer, I2, TAKEOVER),
    (Break::RestoreLowersFence, I1, CALM),
    (Break::RestoreTwice, RESTORED, TAKEOVER),
    (Break::MirrorAsksOne, I4, CALM),
    (Break::MirrorAsksOne, ONE_ANSWER, CALM),
    (Break::MirrorIgnoresAnswer, ONCE, TAKEOVER),
    (Break::MirrorIgnoresDoubt, AT_MOST_ONE, HOLD),
    (Break::SecondSettledFirst, AGREE, TAKEOVER),
    (Break::CopyAnswersOnly, DOUBT, HOLD),
    (Break::CopyAnswersOnly, AT_MOST_ONE, HOLD),
    (Break::CopyLeftOut, KNOWN, CALM),
    (Break::CopyLeftOut, ONCE, CALM),
    (Break::LastCopyLeftOut, KNOWN, TAKEOVER),
    (Break::StepLeftOut, AGREE, TAKEOVER),
    (Break::RolloutsOverlap, ONCE, CALM),
    (Break::TakeoverPastAttempts, RUNS, ATTEMPTS),
    (Break::BodyAfterSettlement, BODY_FIRST, BODIES),
    (Break::BodyGoneIsAbsent, ONCE, BODIES),
    (Break::BodyUnchecked, BODY, BODIES),
];
