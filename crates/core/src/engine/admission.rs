//! What admission decides: whether an effect may run, and under which lease.

use super::coalesce::Leader;
use super::handout::LeaseHandout;
use super::response::{Problem, Replayed};
use crate::claim::Grant;
use crate::clock::Tick;
use crate::event::Ending;

/// Whether the effect of a request may run. `L` is the lease that a winner gets: [`LeaseHandout`]
/// for an effect that runs elsewhere.
#[derive(Debug)]
pub enum Admission<L = LeaseHandout> {
    /// Run the effect under this lease.
    Won(L),
    /// Run the effect without a lease and settle nothing: mode `off` or `observe`, or fail-open.
    Unprotected,
    /// Don't run it: this is the answer of an earlier run.
    Replayed(Replayed),
    /// Don't run it: there is no answer to give.
    Problem(Problem),
}

impl<L> Admission<L> {
    /// How the request ends with this admission, for observers.
    pub(super) const fn ending(&self) -> Ending {
        match self {
            Self::Won(_) => Ending::HandedOut,
            Self::Unprotected => Ending::Unprotected,
            Self::Replayed(replayed) => replayed.ending(),
            Self::Problem(problem) => Ending::Problem(problem.code()),
        }
    }

    /// The lease if the claim won; otherwise the same admission for any other type of lease.
    pub(super) fn into_won<M>(self) -> Result<L, Admission<M>> {
        match self {
            Self::Won(lease) => Ok(lease),
            Self::Unprotected => Err(Admission::Unprotected),
            Self::Replayed(replayed) => Err(Admission::Replayed(replayed)),
            Self::Problem(problem) => Err(Admission::Problem(problem)),
        }
    }
}

/// A lease that this process won, and the two times that its owner needs.
pub(super) struct Won {
    pub(super) grant: Grant,
    /// When the claim that won was first sent: the deadline counts from then (P30).
    pub(super) sent: Tick,
    /// When the answer came.
    pub(super) now: Tick,
    /// The leader of the callers that asked for the same key meanwhile, if the claim was coalesced.
    pub(super) leader: Option<Leader>,
}
