//! Rules that can be switched off, to show that the properties notice.

use std::fmt;

macro_rules! breaks {
    ($($name:ident, $word:literal, $what:literal;)+) => {
        /// A rule, broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Break {
            $(#[doc = $what] $name,)+
        }

        impl Break {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// What goes wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)+ }
            }
        }
    };
}

breaks! {
    TakeoverTooEarly, "takeover-too-early", "A live lease is taken over (P8).";
    TakeoverUnderHold, "takeover-under-hold", "A lapsed lease under `hold` is taken over (P10).";
    TakeoverPastAttempts, "takeover-past-attempts", "The number of attempts isn't looked at (P10).";
    TakeoverNotCounted, "takeover-not-counted", "A takeover doesn't raise the attempt (P9).";
    AskersPolicy, "askers-policy", "The asker's crash policy decides, not the stored one (P13).";
    LapseUnnoticed, "lapse-unnoticed", "A lapsed lease still answers Busy (P9).";
    FenceAfterRelease, "fence-after-release", "The fence doesn't grow after a release (P22).";
    FenceAfterExpiry, "fence-after-expiry", "The fence begins at 1 again after expiry (P22).";
    MismatchWhileRunning, "mismatch-while-running", "A running record's payload isn't compared (P7).";
    MismatchWhenSettled, "mismatch-when-settled", "A settled record's payload isn't compared (P7).";
    ResendUnknown, "resend-unknown", "The owner's own claim, sent again, is a stranger's (P6).";
    DoubtIsFree, "doubt-is-free", "A record in doubt may be claimed (P11).";
    ExpiredLingers, "expired-lingers", "A record counts until it is removed, expired or not (P20).";
    CheckpointDropped, "checkpoint-dropped", "A takeover is not handed the checkpoint (P9, P15).";
    CheckpointCleared, "checkpoint-cleared", "A renewal without a checkpoint clears the last (P15).";
    RenewAnyLease, "renew-any-lease", "A renewal's fence and token aren't compared (P14).";
    RenewAnyFence, "renew-any-fence", "A renewal's fence isn't compared (P14).";
    SettleAnyLease, "settle-any-lease", "A settlement's fence and token aren't compared (P16).";
    SettleAnyFence, "settle-any-fence", "A settlement's fence isn't compared (P16).";
    SettleAnyToken, "settle-any-token", "A settlement's token isn't compared (P16).";
    SettleTwice, "settle-twice", "A settled record may be settled otherwise (P18).";
    LateSettleRefused, "late-settle-refused", "A lapse that nobody used refuses a settlement (P17).";
    ResolveAnyFence, "resolve-any-fence", "A resolution's fence isn't compared (P19).";
    ResolveAnyState, "resolve-any-state", "A record that isn't in doubt may be resolved (P19).";
    SweepTakesLapsed, "sweep-takes-lapsed", "A sweep removes running records that lapsed (P21).";
    SwapMissesRenewal, "swap-misses-renewal", "A renewal leaves what a swap compares as it was (P45).";
    NoDeadline, "no-deadline", "An owner starts its effect however late it is (P30).";
    DeadlineFromResend, "deadline-from-resend", "The deadline counts from the last sending (P30).";
    DeadlineFromRetry, "deadline-from-retry", "A waiter forgets that a claim went unanswered (P30).";
    ReleaseUnderHold, "release-under-hold", "A failure that may be retried releases under `hold` (P36).";
    OwnersPolicy, "owners-policy", "An owner follows its own policy, not the stored one (P36).";
    AnswerUnsettled, "answer-unsettled", "A caller is answered before the settlement is (P33).";
    RestoreOverRunning, "restore-over-running", "A restored record takes the place of a running one (P43).";
    RestoreOverAnswer, "restore-over-answer", "A restored record takes the place of a settled one (P43).";
    RestoreLowersFence, "restore-lowers-fence", "A restored record's fence takes the place of a larger one (P43).";
    RestoreTwice, "restore-twice", "A record restored again is refused as another's (P43).";
    MirrorAsksOne, "mirror-asks-one", "A node of two stores starts when the first grants (P43, ADR 0017).";
    MirrorIgnoresAnswer, "mirror-ignores-answer", "The second store's answer is taken for a grant (ADR 0017).";
    SecondSettledFirst, "second-settled-first", "The second store is settled before the first (ADR 0017).";
    CopyAnswersOnly, "copy-answers-only", "The copier brings answers, and leaves doubts behind (P43).";
    CopyLeftOut, "copy-left-out", "The old store is given up, and the copier never ran.";
    LastCopyLeftOut, "last-copy-left-out", "The old store is given up without a last run of the copier.";
    StepLeftOut, "step-left-out", "From the old store to new and old, without old and new between.";
    RolloutsOverlap, "rollouts-overlap", "A rollout begins before the last one has ended.";
    BodyAfterSettlement, "body-after-settlement", "A body is written after the record that names it (P44).";
    BodyGoneIsAbsent, "body-gone-is-absent", "A record whose body is gone counts as absent (P44).";
    BodyUnchecked, "body-unchecked", "A body is given without a look at its digest (P44).";
}

impl std::str::FromStr for Break {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|broken| broken.name() == word);
        found
            .copied()
            .ok_or_else(|| format!("no rule to break is called {word:?}; see --list"))
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of broken rules. Empty for the protocol as it ships.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaks(u64);

impl Breaks {
    /// Nothing is broken.
    pub const NONE: Self = Self(0);

    /// Only `broken`.
    #[must_use]
    pub const fn of(broken: Break) -> Self {
        Self::NONE.and(broken)
    }

    /// Whether nothing is broken.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `broken` is.
    #[must_use]
    pub const fn has(self, broken: Break) -> bool {
        self.0 & (1 << broken as u8) != 0
    }

    /// Those that are decisions of one store.
    pub(super) const fn of_one_store(self) -> Self {
        Self(self.0 & ((1 << Break::RestoreOverRunning as u8) - 1))
    }

    /// These, and `broken`.
    #[must_use]
    pub const fn and(self, broken: Break) -> Self {
        Self(self.0 | 1 << broken as u8)
    }
}
