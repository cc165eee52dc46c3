//! The bounds of a migration: participants, time, and faults.

use super::super::breaks::Breaks;
use super::super::config::{BASE, ModelConfig as ClaimTerms};
use super::super::world::{Ticks, Verdict};
use super::world::Uses;

/// One bounded space of moves.
#[derive(Clone, Copy, Debug)]
pub struct MovingConfig {
    /// What it is called in reports.
    pub name: &'static str,
    /// Which rules are broken.
    pub breaks: Breaks,
    /// Clients, spans and attempts.
    pub(in super::super) terms: ClaimTerms,
    /// What all nodes use at the beginning.
    pub(in super::super) begins: Uses,
    /// How far the clocks of the old and the new store are ahead.
    pub(in super::super) ahead: [Ticks; 2],
    pub(in super::super) horizon: Ticks,
    /// Requests.
    pub(in super::super) asks: u8,
    /// How often, in all, one that was told to wait asks again. A claim that one store grants and
    /// the other refuses raises a fence each time, so without a bound there would be no end.
    pub(in super::super) retries: u8,
    /// Deaths of nodes, or of the copier.
    pub(in super::super) crashes: u8,
    /// Calls without an answer.
    pub(in super::super) losses: u8,
    /// Whether one of those may arrive later.
    pub(in super::super) strays: bool,
    /// Runs of the copier.
    pub(in super::super) runs: u8,
    pub(in super::super) verdicts: &'static [Verdict],
    pub(in super::super) renewals: bool,
    /// Whether bodies are lost or changed.
    pub(in super::super) harm: bool,
}

impl MovingConfig {
    /// The same space under other rules.
    #[must_use]
    pub const fn with(self, breaks: Breaks) -> Self {
        Self { breaks, ..self }
    }

    /// Whether all that can happen here can happen there: the same nodes, and no more of anything.
    #[cfg(test)]
    pub(super) fn is_within(&self, other: &Self) -> bool {
        // All nodes may be rolled out to old and new before anything else happens.
        let later = (other.begins, self.begins) == (Uses::Old, Uses::OldAndNew);
        let counts = |c: &Self| [c.horizon, c.asks, c.retries, c.crashes, c.losses, c.runs];
        let fewer = counts(self)
            .iter()
            .zip(counts(other))
            .all(|(here, there)| *here <= there);
        let switches = |c: &Self| [c.strays, c.renewals, c.harm];
        let less = switches(self)
            .iter()
            .zip(switches(other))
            .all(|(here, there)| *here <= there);
        let same = |c: &Self| {
            let terms = (c.terms.lease, c.terms.retention, c.terms.max_attempts);
            (format!("{:?}", c.terms.clients), terms, c.ahead)
        };
        let ends = self.verdicts.iter().all(|end| other.verdicts.contains(end));
        (self.begins == other.begins || later) && fewer && less && ends && same(self) == same(other)
    }
}

/// What all spaces have in common. Nothing expires: what is forgotten by mistake can't hide behind
/// that.
pub(in super::super) const MOVE: MovingConfig = MovingConfig {
    name: "",
    breaks: Breaks::NONE,
    terms: ClaimTerms {
        retention: 20,
        ..BASE
    },
    begins: Uses::Old,
    ahead: [0, 0],
    horizon: 4,
    asks: 3,
    retries: 1,
    crashes: 1,
    losses: 0,
    strays: false,
    runs: 2,
    verdicts: &[Verdict::Complete, Verdict::Retry],
    renewals: false,
    harm: false,
};
