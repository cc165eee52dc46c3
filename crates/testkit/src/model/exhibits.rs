//! For every broken rule: the property that detects it, in a small space.

use super::breaks::{Break, Breaks};
use super::config::{BASE, HOLDS, ModelConfig, OTHER_TAKES, Renewals, TAKES};
use super::moving;
use super::spaces::Space;
use super::world::Verdict;

/// A broken rule, and what it breaks.
#[derive(Clone, Copy, Debug)]
pub struct Exhibit {
    /// What is broken.
    pub broken: Break,
    /// The property that no longer holds.
    pub property: &'static str,
    /// The space, with the rule broken.
    pub space: Space,
}

/// All of them. A rule may break several properties; every property is broken by some rule.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    let all = STORE.iter().chain(CLIENT);
    let of_a_store = all.map(|&(broken, property, space)| Exhibit {
        broken,
        property,
        space: Space::Store(ModelConfig {
            name: broken.name(),
            breaks: space.breaks.and(broken),
            ..space
        }),
    });
    let of_a_move = moving::exhibits().iter();
    let of_a_move = of_a_move.map(|&(broken, property, space)| Exhibit {
        broken,
        property,
        space: Space::Move(moving::MovingConfig {
            name: broken.name(),
            breaks: space.breaks.and(broken),
            ..space
        }),
    });
    of_a_store.chain(of_a_move).collect()
}

const SMALL: ModelConfig = ModelConfig {
    name: "small",
    horizon: 3,
    losses: 0,
    crashes: 0,
    strays: 0,
    verdicts: &[Verdict::Complete, Verdict::Retry],
    renewals: Renewals::None,
    operator: false,
    ..BASE
};
const ONE: ModelConfig = ModelConfig {
    clients: &[TAKES],
    ..SMALL
};
const TWO: ModelConfig = ModelConfig {
    clients: &[TAKES, TAKES],
    ..SMALL
};
const TWO_HOLD: ModelConfig = ModelConfig {
    clients: &[HOLDS, HOLDS],
    ..SMALL
};
const TWO_POLICIES: ModelConfig = ModelConfig {
    clients: &[TAKES, HOLDS],
    ..SMALL
};
const TWO_PAYLOADS: ModelConfig = ModelConfig {
    clients: &[TAKES, OTHER_TAKES],
    ..SMALL
};
const CHECKPOINTS: ModelConfig = ModelConfig {
    renewals: Renewals::Both,
    ..TWO
};
/// The store looks, and swaps later; the owner renews.
const TWO_STEPS: ModelConfig = ModelConfig {
    two_steps: true,
    renewals: Renewals::Plain,
    ..TWO
};
const LOST_REPLY: ModelConfig = ModelConfig { losses: 1, ..ONE };
const OPERATED: ModelConfig = ModelConfig {
    operator: true,
    ..TWO_HOLD
};
/// One client whose messages are repeated and overtaken: its token is used under two fences.
const REPEATED: ModelConfig = ModelConfig {
    strays: 2,
    renewals: Renewals::Plain,
    ..ONE
};

const I1: &str = "I1 fences only grow";
const I3: &str = "I3 a stale lease changes nothing";
const I4: &str = "I4 an effect starts under a live lease";
const I5: &str = "I5 only a lapsed lease is taken over, and only if allowed";
const I7: &str = "I7 a mismatch yields nothing";
const P15: &str = "P15 a checkpoint is kept and handed on";
const P19: &str = "P19 a resolution ends the doubt it names";
const HOLD: &str = "hold: at most one effect";

type ExhibitRow = (Break, &'static str, ModelConfig);

const STORE: &[ExhibitRow] = &[
    (Break::TakeoverTooEarly, I5, TWO),
    (
        Break::TakeoverTooEarly,
        "I1 one owner at a time may start",
        TWO,
    ),
    (Break::TakeoverUnderHold, I5, TWO_HOLD),
    (Break::TakeoverUnderHold, HOLD, TWO_HOLD),
    (
        Break::TakeoverPastAttempts,
        I5,
        ModelConfig {
            max_attempts: 1,
            ..TWO
        },
    ),
    (
        Break::TakeoverNotCounted,
        "takeover: no more effects than attempts",
        TWO,
    ),
    (Break::AskersPolicy, I5, TWO_POLICIES),
    (Break::AskersPolicy, HOLD, TWO_POLICIES),
    (
        Break::LapseUnnoticed,
        "I10 a lapsed lease can be claimed",
        TWO,
    ),
    (Break::FenceAfterRelease, I1, TWO),
    (Break::FenceAfterExpiry, I1, TWO),
    (Break::MismatchWhileRunning, I7, TWO_PAYLOADS),
    (Break::MismatchWhenSettled, I7, TWO_PAYLOADS),
    (
        Break::ResendUnknown,
        "I6 a call sent again is answered the same",
        LOST_REPLY,
    ),
    (Break::DoubtIsFree, HOLD, TWO_HOLD),
    (Break::ExpiredLingers, "I12 expired is absent at once", TWO),
    (Break::CheckpointDropped, P15, CHECKPOINTS),
    (Break::CheckpointCleared, P15, CHECKPOINTS),
    (Break::RenewAnyLease, I3, CHECKPOINTS),
    (Break::RenewAnyFence, I3, REPEATED),
    (Break::SettleAnyLease, I3, TWO),
    (Break::SettleAnyFence, I3, REPEATED),
    // While fences grow, the token is a second line that nothing reaches. Without them it holds
    // alone.
    (
        Break::SettleAnyToken,
        I3,
        ModelConfig {
            breaks: Breaks::of(Break::FenceAfterExpiry),
            ..TWO
        },
    ),
    (Break::SettleTwice, "I2 an answer never changes", OPERATED),
    (
        Break::SettleTwice,
        "I2 all callers of one life get one answer",
        OPERATED,
    ),
    (Break::SettleTwice, "P18 settled once", OPERATED),
    (
        Break::LateSettleRefused,
        "P17 an owner may settle late",
        TWO,
    ),
    (
        Break::ResolveAnyFence,
        P19,
        ModelConfig {
            horizon: 4,
            verdicts: NOTHING,
            ..OPERATED
        },
    ),
    (Break::ResolveAnyState, P19, OPERATED),
    (
        Break::SweepTakesLapsed,
        "I12 only expired records are swept",
        ONE,
    ),
    (Break::SweepTakesLapsed, HOLD, TWO_HOLD),
    (Break::SwapMissesRenewal, I5, TWO_STEPS),
    (
        Break::SwapMissesRenewal,
        "I1 one owner at a time may start",
        TWO_STEPS,
    ),
];

const CLIENT: &[ExhibitRow] = &[
    (
        Break::NoDeadline,
        "I4 no effect starts past the deadline",
        ONE,
    ),
    (Break::NoDeadline, I4, ONE),
    (Break::DeadlineFromResend, I4, LOST_REPLY),
    (
        Break::DeadlineFromRetry,
        I4,
        ModelConfig { strays: 1, ..TWO },
    ),
    (
        Break::ReleaseUnderHold,
        "I13 release only where nothing happened, or may again",
        TWO_HOLD,
    ),
    (Break::ReleaseUnderHold, HOLD, TWO_HOLD),
    (
        Break::OwnersPolicy,
        "P36 the stored policy decides the settlement",
        TWO_POLICIES,
    ),
    (
        Break::AnswerUnsettled,
        "P33 an answer given is the answer recorded",
        ModelConfig { strays: 1, ..ONE },
    ),
];

const NOTHING: &[Verdict] = &[Verdict::NoEffect];
