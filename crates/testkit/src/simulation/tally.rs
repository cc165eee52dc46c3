//! The counters and findings of a run.

use std::collections::BTreeMap;
use std::fmt;

/// What happened in one world, or in many.
#[derive(Clone, Debug, Default)]
pub struct RunTally {
    /// Worlds, one for each seed.
    pub seeds: u64,
    /// Calls that reached the store and were decided there.
    pub operations: u64,
    /// Requests that a node was given.
    pub requests: u64,
    /// Effects that began.
    pub effects: u64,
    /// Simulated time, in microseconds, added up over the worlds.
    pub micros: u128,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What callers were told.
    pub told: BTreeMap<&'static str, u64>,
}

impl RunTally {
    /// Adds what another world counted.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.requests += other.requests;
        self.effects += other.effects;
        self.micros += other.micros;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (what, count) in &other.told {
            *self.told.entry(what).or_default() += count;
        }
    }

    /// Simulated years of 365.25 days.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn years(&self) -> f64 {
        self.micros as f64 / (365.25 * 24.0 * 3600.0 * 1e6)
    }

    pub(super) fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub(super) fn tell(&mut self, what: &'static str) {
        *self.told.entry(what).or_default() += 1;
    }
}

/// Something that cannot happen where every rule is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// In which world.
    pub seed: u64,
    /// Which rule of `spec/protocol.md`.
    pub rule: &'static str,
    /// What happened, in a sentence.
    pub sentence: String,
    /// The calls that show it.
    pub story: Vec<String>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {}: {}", self.seed, self.rule, self.sentence)?;
        for line in &self.story {
            writeln!(f, "    {line}")?;
        }
        write!(f, "again: semel-simulate --seeds 1 --from {}", self.seed)
    }
}
