//! Counts which rule gave each answer, to show that a run covered the rules.

use std::fmt;

macro_rules! rules {
    ($($name:ident = $words:literal,)*) => {
        /// The rule, and where it matters the circumstance, by which the reference answered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant's words are its documentation")]
        pub enum Rule {
            $($name,)*
        }

        impl Rule {
            /// All of them, in the order of the specification.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The rule in words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

rules! {
    ClaimNew = "P5 claim of a new key: won",
    ClaimExpired = "P5 claim of an expired record: won",
    ClaimReleased = "P5 claim of a released key: won",
    ClaimAgain = "P6 claim sent again: the same lease",
    ClaimAgainLate = "P6 claim sent again after the lapse: the same lease",
    MismatchRunning = "P7 claim with another payload, while running: mismatch",
    Mismatch = "P7 claim with another payload, afterwards: mismatch",
    Busy = "P8 claim of a live lease: busy",
    Takeover = "P9 claim of a lapsed lease: taken over",
    TakeoverProgress = "P9 claim of a lapsed lease with a checkpoint: taken over",
    HeldDoubt = "P10 claim of a lapsed lease under hold: in doubt",
    AttemptsDoubt = "P10 claim of a lapsed lease, attempts used up: in doubt",
    Doubt = "P11 claim of a record in doubt: in doubt",
    ReplayCompleted = "P12 claim of a completed record: replay",
    ReplayFailed = "P12 claim of a failed record: replay",
    ReplayOmitted = "P12 claim of a record whose body was not kept: replay",
    Renewed = "P14 renewal: held",
    RenewedLate = "P14 renewal after the lapse: held",
    RenewLost = "P14 renewal by another than the owner: lost",
    RenewSettled = "P14 renewal of a record that doesn't run: lost",
    Checkpointed = "P15 renewal with a checkpoint: held",
    Completed = "P16 complete: done",
    Failed = "P16 fail: done",
    Released = "P16 release: done",
    Doubted = "P16 doubt: done",
    SettleLost = "P16 settlement by another than the owner: lost",
    SettledLate = "P17 settlement after the lapse: done",
    SettledDoubt = "P17 settlement after the doubt: done",
    SettledAgain = "P18 the same settlement again: done",
    SettledOther = "P18 another settlement: lost",
    Resolved = "P19 resolution of a doubt: done",
    ResolvedLapse = "P19 resolution of a lapse that no claim noticed: done",
    ResolvedAgain = "P19 the same resolution again: done",
    NotInDoubt = "P19 resolution without a doubt: not in doubt",
    WrongDoubt = "P19 resolution under another fence: not in doubt",
    Read = "read: a record",
    ReadAbsent = "read: nothing there",
    ReadExpired = "P20 read of an expired record: nothing there",
    Swept = "P21 sweep: records removed",
    SweptNothing = "P21 sweep: nothing to remove",
    FenceByClock = "P22 fence from the store's clock",
    FenceByLast = "P22 fence from the last fence",
    Deleted = "delete: there was one",
    DeletedNothing = "delete: there was none",
    Restored = "P43 restore where nothing is: written",
    RestoredOver = "P43 restore over a released record: written",
    RestoredAgain = "P43 restore of what is there: written",
    RestoreKept = "P43 restore over another record: kept",
    RestoreExpired = "P43 restore of an expired record: kept",
    Listed = "P29 listing: records",
    ListedLapse = "P29 listing: a lapse as a doubt",
    ListedNothing = "P29 listing: none fits",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// How often each rule gave an answer, and how many operations there were.
#[derive(Clone, Debug)]
pub struct RuleTally {
    counts: Vec<u64>,
    /// Operations applied.
    pub operations: u64,
}

impl Default for RuleTally {
    fn default() -> Self {
        Self {
            counts: vec![0; Rule::ALL.len()],
            operations: 0,
        }
    }
}

impl RuleTally {
    /// Counts one answer.
    pub fn count(&mut self, rule: Rule) {
        self.counts[rule as usize] += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(all, more)| *all += more);
    }

    /// Each rule with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Rule, u64)> + '_ {
        Rule::ALL.iter().copied().zip(self.counts.iter().copied())
    }

    /// The rules that gave no answer at all.
    #[must_use]
    pub fn missing(&self) -> Vec<Rule> {
        self.iter()
            .filter(|(_, count)| *count == 0)
            .map(|(rule, _)| rule)
            .collect()
    }
}
