//! The spaces of moves that are gone through.

use super::super::config::{BASE, Config as Terms, HOLDS, TAKES};
use super::super::world::Verdict;
use super::config::{Config, MOVE};
use super::world::Uses;

/// The spaces of a full run.
pub(in super::super) const FULL: &[Config] = &[MOVE_TAKEOVER, MOVE_HOLD, MOVE_EXPIRY, BODIES];

/// Smaller ones of the same kinds, for every change.
pub(in super::super) const QUICK: &[Config] = &[MOVE_TAKEOVER, MOVE_HOLD, MOVE_EXPIRY, BODIES];

/// Owners that die, and are taken over, at every step of a move.
const MOVE_TAKEOVER: Config = Config {
    name: "moving, takeover",
    terms: Terms {
        clients: &[TAKES, TAKES],
        max_attempts: 2,
        ..MOVE.terms
    },
    ..MOVE
};

/// Doubts that are brought over.
const MOVE_HOLD: Config = Config {
    name: "moving, hold",
    terms: Terms {
        clients: &[HOLDS, HOLDS],
        ..MOVE.terms
    },
    ..MOVE
};

/// Records that expire on the way.
const MOVE_EXPIRY: Config = Config {
    name: "moving, expiry",
    terms: Terms {
        clients: &[TAKES, HOLDS],
        retention: 3,
        ..MOVE.terms
    },
    ..MOVE
};

/// Bodies beside a store.
const BODIES: Config = Config {
    name: "bodies elsewhere",
    terms: Terms {
        clients: &[TAKES, HOLDS],
        ..BASE
    },
    begins: Uses::Spill,
    runs: 0,
    losses: 1,
    strays: true,
    harm: true,
    verdicts: &[Verdict::Complete, Verdict::Fail],
    ..MOVE
};
