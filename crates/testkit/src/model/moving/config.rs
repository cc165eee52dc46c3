//! The bounds of a move: who takes part, for how long, and how much may go wrong.

use super::super::breaks::Breaks;
use super::super::config::{BASE, Config as Terms};
use super::super::world::{Ticks, Verdict};
use super::world::Uses;

/// One bounded space of moves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What it is called in reports.
    pub name: &'static str,
    /// Which rules are broken.
    pub breaks: Breaks,
    /// Clients, spans and attempts.
    pub(in super::super) terms: Terms,
    /// What all nodes use at the beginning.
    pub(in super::super) begins: Uses,
    /// How far the clocks of the old and the new store are ahead.
    pub(in super::super) ahead: [Ticks; 2],
    pub(in super::super) horizon: Ticks,
    /// Requests.
    pub(in super::super) asks: u8,
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

impl Config {
    /// The same space under other rules.
    #[must_use]
    pub const fn with(self, breaks: Breaks) -> Self {
        Self { breaks, ..self }
    }
}

/// What all spaces have in common. Nothing expires: what is forgotten by mistake can't hide behind that.
pub(in super::super) const MOVE: Config = Config {
    name: "",
    breaks: Breaks::NONE,
    terms: Terms {
        retention: 20,
        ..BASE
    },
    begins: Uses::Old,
    ahead: [0, 0],
    horizon: 4,
    asks: 3,
    crashes: 1,
    losses: 0,
    strays: false,
    runs: 2,
    verdicts: &[Verdict::Complete, Verdict::Retry],
    renewals: false,
    harm: false,
};
