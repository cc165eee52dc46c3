//! One typed event per step of the engine. Logs, metrics, traces and audit all derive from these.
//!
//! An event names a key by its namespace, its first characters and its hash; never by the whole key,
//! and never with a payload.

use std::time::Duration;

use crate::error::{Certainty, StoreErrorKind};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;
use crate::record::{Fence, State};

/// What happened to which key. Where there was no usable key, hint and identity are all zeros.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Where the key lives.
    pub namespace: &'a Namespace,
    /// How the key begins.
    pub hint: KeyHint,
    /// The key's hash.
    pub identity: Identity,
    /// Who asked, where a door knows.
    pub actor: Option<&'a str>,
    /// What happened.
    pub step: Step,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A claim won.
    Claimed {
        /// Of the lease won.
        fence: Fence,
        /// 1, or more after a takeover.
        attempt: u16,
        /// How long the claim took, waiting included.
        took: Duration,
    },
    /// An answer was given from a record.
    Replayed {
        /// Completed or failed.
        state: State,
        /// Whether from this process's own copy.
        local: bool,
        /// The how-manieth replay of this record by this process; `None` where no copy is kept.
        number: Option<u32>,
    },
    /// The key was used with another payload.
    Mismatched,
    /// A caller began to wait for another's run.
    WaitBegan,
    /// A caller stopped waiting.
    WaitEnded {
        /// How long it waited.
        waited: Duration,
    },
    /// A caller was told that another runs.
    Busy {
        /// Why it did not wait, or no longer.
        why: BusyReason,
    },
    /// The effect was started.
    EffectBegan {
        /// Of its lease; `None` where it runs unprotected.
        fence: Option<Fence>,
    },
    /// The effect ended. Of an effect elsewhere this is told by the process that handed its lease out, or not at all.
    EffectEnded {
        /// What it reported.
        verdict: VerdictKind,
        /// How long it ran.
        took: Duration,
    },
    /// The lease was renewed.
    Renewed {
        /// Of the lease.
        fence: Fence,
    },
    /// The owner learned that it isn't, or can't be sure that it still is.
    LeaseLost {
        /// Of the lease lost.
        fence: Fence,
    },
    /// The settlement was acknowledged.
    Settled {
        /// What the record says now.
        state: State,
        /// Of the lease.
        fence: Fence,
    },
    /// The settlement could not be recorded.
    Unrecorded {
        /// Of the lease.
        fence: Fence,
    },
    /// A caller met an operation of unknown outcome.
    InDoubt {
        /// Of the run in doubt.
        fence: Fence,
    },
    /// An operator, or whoever acts for one, ended a doubt.
    Resolved {
        /// What the record says now.
        state: State,
        /// Of the run that was in doubt.
        fence: Fence,
    },
    /// An operator took a lease away from its owner.
    Unlocked {
        /// What the record says now: released, or in doubt.
        state: State,
        /// Of the lease.
        fence: Fence,
    },
    /// An operator made the key as new.
    Deleted,
    /// A recover hook was asked.
    Recovered {
        /// Of the run in doubt.
        fence: Fence,
        /// Whether the hook knew.
        known: bool,
    },
    /// A store call failed.
    StoreFailed {
        /// Which call.
        call: StoreCall,
        /// Why.
        kind: StoreErrorKind,
        /// Whether it may have changed something.
        certainty: Certainty,
    },
    /// A store call ended, well or not. Told only to an observer that wants times.
    StoreCalled {
        /// Which call.
        call: StoreCall,
        /// How long it took.
        took: Duration,
        /// Whether the store answered; where not, [`Step::StoreFailed`] says why.
        answered: bool,
    },
    /// The breaker is open: the store was not asked.
    NotAsked,
    /// The breaker opened, half-opened or closed.
    Breaker {
        /// What it is now.
        state: BreakerState,
    },
    /// The store gave no answer, and the effect ran unprotected because the scope says so.
    FailedOpen,
    /// The answer is larger than what is kept: its body is left out of the record (P27).
    Oversized {
        /// The bytes of the body, as far as they are known.
        bytes: u64,
        /// The most that is kept.
        most: usize,
    },
    /// The engine is done with a request: told once for each, last, and only to an observer that wants times.
    Answered {
        /// How.
        how: Ending,
        /// What it asked for.
        fingerprint: Fingerprint,
        /// How long it took, effect and waiting included.
        took: Duration,
    },
    /// Observe mode: what enforcing would have done.
    Observed {
        /// That.
        would: Would,
    },
    /// A door let a request without a key pass.
    Passed,
    /// A door refused a request before any store was asked: no key where one is required, or one that
    /// can't be used.
    Refused {
        /// The word that the caller was given.
        code: &'static str,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its effect ran, and its settlement is recorded.
    Ran,
    /// With a lease for an effect elsewhere.
    HandedOut,
    /// With the answer of an earlier run; the how-manieth time, where that is known.
    Replayed(Option<u32>),
    /// Its effect ran, or may run, without protection.
    Unprotected,
    /// Without an answer: the word of the problem.
    Problem(&'static str),
}

/// Why a caller was told "busy".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyReason {
    /// The policy says not to wait.
    Policy,
    /// It waited as long as the policy allows.
    WaitedTooLong,
    /// As many as may wait for this key already do.
    KeyWaiters,
    /// As many as may wait in this process already do.
    ProcessWaiters,
    /// As many of this tenant as may wait in this process already do.
    TenantWaiters,
}

/// What an effect reported, without its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// An answer.
    Complete,
    /// A final failure.
    Fail,
    /// A failure that may be retried.
    Retry,
    /// A failure before anything happened.
    NoEffect,
    /// It doesn't know.
    Unknown,
    /// Nothing: it panicked.
    Panic,
}

/// A call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// A claim.
    Claim,
    /// A renewal.
    Renew,
    /// A settlement.
    Settle,
    /// A resolution.
    Resolve,
    /// A look at the record.
    Read,
}

/// What the breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything.
    Closed,
    /// Nothing, for a time.
    Open,
    /// One claim, to try.
    HalfOpen,
}

/// What enforcing would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Would {
    /// Answered from the record.
    Replay,
    /// Waited, or refused: another was running.
    Busy,
    /// Refused: another payload.
    Mismatch,
    /// Refused: in doubt.
    InDoubt,
    /// Refused: the store gave no answer.
    Unavailable,
    /// Refused at the door, with this word: no key, or one that can't be used.
    Refuse(&'static str),
}

/// Takes events. Called on the hot path: return quickly, never block.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &Event<'_>);

    /// Whether to tell it how long things took: [`Step::StoreCalled`] and [`Step::Answered`]. Each costs a look at
    /// the clock, so whoever doesn't use them should say so. Asked once, when an engine is made.
    fn wants_times(&self) -> bool {
        true
    }
}

/// Takes no notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Observer for Ignore {
    fn observe(&self, _: &Event<'_>) {}

    fn wants_times(&self) -> bool {
        false
    }
}
