//! The explored spaces, each small enough to be explored completely.

use super::breaks::Breaks;
use super::config::{BASE, HOLDS, ModelConfig, OTHER_HOLDS, OTHER_TAKES, Renewals, TAKES};
use super::moving;
use super::world::Verdict;

/// A bounded space of behaviours.
#[derive(Clone, Copy, Debug)]
pub enum Space {
    /// Of one store.
    Store(ModelConfig),
    /// Of two, while records move, or of a store and the bodies beside it.
    Move(moving::MovingConfig),
}

impl Space {
    /// What it is called in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Store(config) => config.name,
            Self::Move(config) => config.name,
        }
    }

    /// Which rules are broken in it.
    #[must_use]
    pub const fn breaks(&self) -> Breaks {
        match self {
            Self::Store(config) => config.breaks,
            Self::Move(config) => config.breaks,
        }
    }

    /// The same space under other rules.
    #[must_use]
    pub const fn with(self, breaks: Breaks) -> Self {
        match self {
            Self::Store(config) => Self::Store(config.with(breaks)),
            Self::Move(config) => Self::Move(config.with(breaks)),
        }
    }
}

/// The spaces of a full run.
#[must_use]
pub fn full() -> Vec<Space> {
    of(FULL, moving::FULL)
}

/// Smaller ones of the same kinds, for every change.
#[must_use]
pub fn quick() -> Vec<Space> {
    of(QUICK, moving::QUICK)
}

fn of(store: &[ModelConfig], moves: &[moving::MovingConfig]) -> Vec<Space> {
    let store = store.iter().copied().map(Space::Store);
    let moves = moves.iter().copied().map(Space::Move);
    store.chain(moves).collect()
}

const FULL: &[ModelConfig] = &[TAKEOVER, HOLD, MIXED, DELAYED, REPEATED, TWO_STEPS];

const QUICK: &[ModelConfig] = &[
    ModelConfig {
        losses: 0,
        renewals: Renewals::None,
        beyond: &[
            OTHER_PAYLOAD,
            UNDER_HOLD,
            OPERATED,
            FAILURE,
            LANDING,
            CHECKPOINT,
            RESENT,
        ],
        ..TAKEOVER
    },
    ModelConfig { crashes: 0, ..HOLD },
    ModelConfig {
        crashes: 0,
        renewals: Renewals::Checkpoint,
        beyond: &[ATTEMPTS, LANDING],
        ..MIXED
    },
    ModelConfig {
        crashes: 0,
        beyond: &[
            OTHER_PAYLOAD,
            CHECKPOINT,
            ATTEMPTS,
            OPERATED,
            FAILURE,
            LANDING,
        ],
        ..DELAYED
    },
    ModelConfig {
        strays: 1,
        ..REPEATED
    },
    ModelConfig {
        crashes: 0,
        horizon: 4,
        ..TWO_STEPS
    },
];

/// Three owners in a row, each but the last taken over, with a checkpoint handed on.
const TAKEOVER: ModelConfig = ModelConfig {
    name: "takeover",
    clients: &[TAKES, TAKES, TAKES],
    horizon: 6,
    renewals: Renewals::Checkpoint,
    beyond: &[OTHER_PAYLOAD, UNDER_HOLD, OPERATED, FAILURE, LANDING],
    ..BASE
};

/// At most once, with a person to end the doubts, and a caller with another payload.
const HOLD: ModelConfig = ModelConfig {
    name: "hold",
    clients: &[HOLDS, HOLDS, OTHER_HOLDS],
    verdicts: &[Verdict::Complete, Verdict::Retry, Verdict::NoEffect],
    horizon: 4,
    operator: true,
    beyond: &[TAKEOVERS, CHECKPOINT, ATTEMPTS, LANDING],
    ..BASE
};

/// Nodes that are configured differently; every verdict.
const MIXED: ModelConfig = ModelConfig {
    name: "mixed",
    clients: &[HOLDS, TAKES, OTHER_TAKES],
    verdicts: &[
        Verdict::Complete,
        Verdict::Fail,
        Verdict::Retry,
        Verdict::NoEffect,
        Verdict::Unknown,
    ],
    horizon: 4,
    renewals: Renewals::None,
    operator: true,
    beyond: &[CHECKPOINT, ATTEMPTS, LANDING],
    ..BASE
};

/// Messages that arrive late, or twice, or after their sender's crash.
const DELAYED: ModelConfig = ModelConfig {
    name: "delayed",
    clients: &[TAKES, TAKES, HOLDS],
    horizon: 4,
    losses: 0,
    strays: 1,
    beyond: &[OTHER_PAYLOAD, CHECKPOINT, ATTEMPTS, OPERATED, FAILURE],
    ..BASE
};

/// Two such messages at a time.
const REPEATED: ModelConfig = ModelConfig {
    name: "repeated",
    clients: &[HOLDS, TAKES],
    verdicts: &[Verdict::Complete, Verdict::Retry, Verdict::NoEffect],
    horizon: 4,
    losses: 0,
    strays: 2,
    beyond: &[OTHER_PAYLOAD, CHECKPOINT, ATTEMPTS, OPERATED, FAILURE],
    ..BASE
};

/// A store that looks, decides, and swaps what it saw for what it decided, unless that has changed.
const TWO_STEPS: ModelConfig = ModelConfig {
    name: "two steps",
    clients: &[TAKES, HOLDS],
    horizon: 5,
    two_steps: true,
    beyond: &[
        OTHER_PAYLOAD,
        CHECKPOINT,
        ATTEMPTS,
        OPERATED,
        FAILURE,
        LANDING,
    ],
    ..BASE
};

const OTHER_PAYLOAD: &[&str] = &["a mismatch while running", "a mismatch when settled"];
const UNDER_HOLD: &[&str] = &["in doubt by hold", "in doubt though nothing was started"];
const TAKEOVERS: &[&str] = &["a takeover", "the last takeover"];
const CHECKPOINT: &[&str] = &["a takeover with a checkpoint"];
const ATTEMPTS: &[&str] = &["in doubt by attempts used up"];
const FAILURE: &[&str] = &["a failure replayed"];
const LANDING: &[&str] = &["a settlement lands after its sender's crash"];
const OPERATED: &[&str] = &[
    "a resolution done",
    "a resolution refused",
    "a resolution sent again is done",
];
const RESENT: &[&str] = &[
    "a claim sent again wins the same lease",
    "a settlement sent again is done",
    "in doubt, and known to be",
];

#[cfg(test)]
mod tests {
    use super::super::reach::SOMETIMES;
    use super::*;

    #[test]
    fn no_outcome_is_beyond_every_space() {
        for spaces in [FULL, QUICK] {
            for outcome in SOMETIMES {
                let reached = spaces.iter().any(|space| !space.is_beyond(outcome.name));
                assert!(reached, "{:?}", outcome.name);
            }
        }
    }

    #[test]
    fn what_is_beyond_a_space_is_an_outcome() {
        for space in FULL.iter().chain(QUICK) {
            for name in space.beyond.concat() {
                assert!(
                    SOMETIMES.iter().any(|outcome| outcome.name == name),
                    "{name:?}"
                );
            }
        }
    }
}
