//! The explored spaces of migrations.

use super::super::config::{BASE, HOLDS, ModelConfig as ClaimTerms, TAKES};
use super::super::world::Verdict;
use super::config::{MOVE, MovingConfig};
use super::world::Uses;

/// The spaces of a full run.
pub(in super::super) const FULL: &[MovingConfig] = QUICK;

/// Those for every change. The broken rules are shown within the same ones.
pub(in super::super) const QUICK: &[MovingConfig] = &[
    TAKEOVER,
    TO_NEW,
    ATTEMPTS,
    HOLD,
    HOLD_TO_NEW,
    CALM,
    LATE,
    COPIER,
    EXPIRY,
    BODIES,
];

/// Owners that die, and are taken over, from the old store to new and old.
pub(super) const TAKEOVER: MovingConfig = MovingConfig {
    name: "moving, takeover",
    terms: ClaimTerms {
        clients: &[TAKES, TAKES],
        ..MOVE.terms
    },
    horizon: 2,
    asks: 2,
    runs: 1,
    verdicts: &[Verdict::Complete],
    ..MOVE
};

/// The same, from old and new to the end.
pub(super) const TO_NEW: MovingConfig = MovingConfig {
    name: "moving, takeover, to the end",
    begins: Uses::OldAndNew,
    retries: 0,
    runs: 2,
    ..TAKEOVER
};

/// One attempt only.
pub(super) const ATTEMPTS: MovingConfig = MovingConfig {
    name: "moving, attempts",
    terms: ClaimTerms {
        max_attempts: 1,
        ..TAKEOVER.terms
    },
    runs: 0,
    ..TAKEOVER
};

/// Doubts that are brought over.
pub(super) const HOLD: MovingConfig = MovingConfig {
    name: "moving, hold",
    terms: ClaimTerms {
        clients: &[HOLDS, HOLDS],
        ..MOVE.terms
    },
    retries: 0,
    ..TAKEOVER
};

/// The same, from old and new to the end.
pub(super) const HOLD_TO_NEW: MovingConfig = MovingConfig {
    name: "moving, hold, to the end",
    terms: HOLD.terms,
    ..TO_NEW
};

/// Nobody dies. Owners give their leases back.
pub(super) const CALM: MovingConfig = MovingConfig {
    name: "moving, calm",
    crashes: 0,
    retries: 0,
    verdicts: &[Verdict::Complete, Verdict::Retry],
    ..TAKEOVER
};

/// One node, all the way: calls that arrive late, or whose replies are lost. No lease lapses, or is
/// given back by its owner: see *Known* in the docs.
pub(super) const LATE: MovingConfig = MovingConfig {
    name: "moving, late",
    horizon: 1,
    crashes: 0,
    losses: 1,
    verdicts: &[Verdict::Complete],
    ..COPIER
};

/// One node, all the way: it dies, or the copier does, and the last call of either arrives late.
pub(super) const COPIER: MovingConfig = MovingConfig {
    name: "moving, copier",
    terms: ClaimTerms {
        clients: &[HOLDS],
        ..MOVE.terms
    },
    retries: 0,
    strays: true,
    runs: 2,
    verdicts: &[Verdict::Complete, Verdict::NoEffect],
    ..TAKEOVER
};

/// Records that expire on the way. One life of the key: the model does not know when a record was
/// first claimed, by which `bring` tells two lives apart (its tests show that).
pub(super) const EXPIRY: MovingConfig = MovingConfig {
    name: "moving, expiry",
    terms: ClaimTerms {
        clients: &[TAKES, HOLDS],
        retention: 3,
        ..MOVE.terms
    },
    begins: Uses::OldAndNew,
    horizon: 4,
    asks: 1,
    crashes: 0,
    retries: 0,
    ..TAKEOVER
};

/// Bodies beside a store.
pub(super) const BODIES: MovingConfig = MovingConfig {
    name: "bodies elsewhere",
    terms: ClaimTerms {
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
    fn every_broken_rule_has_an_exhibit_in_an_explored_space() {
        for (broken, _, space) in exhibits() {
            let gone_through = QUICK
                .iter()
                .any(|known| known.name == space.name && space.is_within(known));
            assert!(gone_through, "{broken}: {:?}", space.name);
        }
    }
}
