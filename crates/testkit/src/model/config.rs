//! The bounds of a run: who takes part, for how long, and how much may go wrong.

use std::time::Duration;

use semel_core::CrashPolicy;

use super::breaks::Breaks;
use super::world::{Ticks, Verdict};

/// A tick of the model's clock.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// One bounded space of behaviours.
#[derive(Clone, Copy, Debug)]
pub struct ModelConfig {
    /// What it is called in reports.
    pub name: &'static str,
    /// Which rules are broken.
    pub breaks: Breaks,
    pub(super) clients: &'static [Asker],
    pub(super) lease: Ticks,
    pub(super) retention: Ticks,
    /// The clock stands still from here on.
    pub(super) horizon: Ticks,
    pub(super) max_attempts: u8,
    /// Replies that may be lost.
    pub(super) losses: u8,
    /// Clients that may crash, or callers that may ask again.
    pub(super) crashes: u8,
    /// Messages that may be overtaken by what their sender does next.
    pub(super) strays: usize,
    pub(super) verdicts: &'static [Verdict],
    pub(super) renewals: Renewals,
    pub(super) operator: bool,
    /// Whether the store decides a claim by a look, and writes by a swap later (P45).
    pub(super) two_steps: bool,
    /// What is possible elsewhere, but not within these bounds.
    pub(super) beyond: &'static [&'static [&'static str]],
}

impl ModelConfig {
    /// The same space under other rules.
    #[must_use]
    pub const fn with(self, breaks: Breaks) -> Self {
        Self { breaks, ..self }
    }

    /// Whether a property that must be possible need not be so here.
    pub(super) fn is_beyond(&self, name: &str) -> bool {
        self.beyond.iter().any(|names| names.contains(&name))
    }
}

/// What a client is configured with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) payload: u8,
    pub(super) crash: CrashPolicy,
}

/// Which renewals an owner may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewals {
    None,
    Plain,
    Checkpoint,
    Both,
}

pub(super) const TAKES: Asker = Asker {
    payload: 0,
    crash: CrashPolicy::Takeover,
};
pub(super) const HOLDS: Asker = Asker {
    payload: 0,
    crash: CrashPolicy::Hold,
};
pub(super) const OTHER_TAKES: Asker = Asker {
    payload: 1,
    crash: CrashPolicy::Takeover,
};
pub(super) const OTHER_HOLDS: Asker = Asker {
    payload: 1,
    crash: CrashPolicy::Hold,
};

/// What all spaces have in common: a lease of two ticks, so that one can pass half of it.
pub(super) const BASE: ModelConfig = ModelConfig {
    name: "",
    breaks: Breaks::NONE,
    clients: &[],
    lease: 2,
    retention: 3,
    horizon: 5,
    max_attempts: 3,
    losses: 1,
    crashes: 1,
    strays: 0,
    verdicts: &[Verdict::Complete, Verdict::Retry],
    renewals: Renewals::Plain,
    operator: false,
    two_steps: false,
    beyond: &[],
};
