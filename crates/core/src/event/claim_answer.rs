//! [`ClaimAnswer`]: what the store answered to a claim, for events.

use crate::claim::Claimed;

/// What the store answered to a claim, without the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimAnswer {
    /// The claimant has the lease: there is no answer yet.
    Miss,
    /// The answer of an earlier run.
    Hit,
    /// Another owner runs the effect now.
    InProgress,
    /// The key was used with another payload.
    Mismatch,
    /// It is unknown whether the effect happened.
    InDoubt,
}

impl ClaimAnswer {
    /// The name of the value in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Miss => "miss",
            Self::Hit => "hit",
            Self::InProgress => "in_progress",
            Self::Mismatch => "mismatch",
            Self::InDoubt => "in_doubt",
        }
    }
}

impl From<&Claimed> for ClaimAnswer {
    fn from(claimed: &Claimed) -> Self {
        match claimed {
            Claimed::Won(_) => Self::Miss,
            Claimed::Busy(_) => Self::InProgress,
            Claimed::Replay(_) => Self::Hit,
            Claimed::Mismatch(_) => Self::Mismatch,
            Claimed::InDoubt(_) => Self::InDoubt,
        }
    }
}
