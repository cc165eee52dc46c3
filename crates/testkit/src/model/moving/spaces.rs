//! The spaces of moves that are gone through.

use super::super::config::{BASE, Config as Terms, HOLDS, TAKES};
use super::super::world::Verdict;
use super::config::{Config, MOVE};
use super::world::Uses;

/// The spaces of a full run.
pub(in super::super) const FULL: &[Config] = QUICK;

/// Those for every change. The broken rules are shown in the same ones.
pub(in super::super) const QUICK: &[Config] =
    &[TAKEOVER, ATTEMPTS, HOLD, CALM, COPIER, EXPIRY, BODIES];

/// Owners that die, and are taken over, at every step of a move.
pub(super) const TAKEOVER: Config = Config {
    name: "moving, takeover",
    terms: Terms {
        clients: &[TAKES, TAKES],
        ..MOVE.terms
    },
    horizon: 2,
    asks: 2,
    verdicts: &[Verdict::Complete],
    ..MOVE
};

/// One attempt only.
pub(super) const ATTEMPTS: Config = Config {
    name: "moving, attempts",
    terms: Terms {
        max_attempts: 1,
        ..TAKEOVER.terms
    },
    runs: 0,
    ..TAKEOVER
};

/// Doubts that are brought over.
pub(super) const HOLD: Config = Config {
    name: "moving, hold",
    terms: Terms {
        clients: &[HOLDS, HOLDS],
        ..MOVE.terms
    },
    ..TAKEOVER
};

/// Nobody dies. Owners give their leases back, and renew them.
pub(super) const CALM: Config = Config {
    name: "moving, calm",
    crashes: 0,
    verdicts: &[Verdict::Complete, Verdict::Retry],
    ..TAKEOVER
};

/// Calls that arrive late, or whose replies are lost; a copier that dies.
pub(super) const COPIER: Config = Config {
    name: "moving, copier",
    terms: Terms {
        clients: &[HOLDS],
        ..MOVE.terms
    },
    losses: 1,
    strays: true,
    verdicts: &[Verdict::Complete, Verdict::NoEffect],
    ..TAKEOVER
};

/// Records that expire on the way.
pub(super) const EXPIRY: Config = Config {
    name: "moving, expiry",
    terms: Terms {
        clients: &[TAKES, HOLDS],
        retention: 3,
        ..MOVE.terms
    },
    horizon: 4,
    crashes: 0,
    runs: 1,
    ..TAKEOVER
};

/// Bodies beside a store.
pub(super) const BODIES: Config = Config {
    name: "bodies elsewhere",
    terms: Terms {
        clients: &[TAKES, HOLDS],
        ..BASE
    },
    begins: Uses::Spill,
    horizon: 3,
    runs: 0,
    losses: 1,
    strays: true,
    harm: true,
    ..TAKEOVER
};

#[cfg(test)]
mod tests {
    use super::super::exhibits::exhibits;
    use super::*;

    /// So what each of them shows does not hold without its broken rule either.
    #[test]
    fn every_broken_rule_is_shown_in_a_space_that_is_gone_through() {
        for (broken, _, space) in exhibits() {
            let gone_through = QUICK.iter().any(|known| known.name == space.name);
            assert!(gone_through, "{broken}: {:?}", space.name);
        }
    }
}
