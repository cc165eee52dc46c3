//! Typed events, one per step of the engine. Logs, metrics, traces and the audit trail derive from
//! these.
//!
//! An event names a key by its namespace, its first characters and its hash. It never contains the
//! whole key or a payload.

mod claim_answer;
mod observer;

use std::time::Duration;

use crate::claim::Mismatch;
use crate::clock::Timestamp;
use crate::code::Code;
use crate::error::{Certainty, StoreErrorKind};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;
use crate::record::{Fence, State};
pub use claim_answer::ClaimAnswer;
pub use observer::{NoopObserver, Observer, ObserverList};

/// A step of the engine, and the key that it is about. Without a usable key, hint and identity are
/// all zeros.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The namespace of the key.
    pub namespace: &'a Namespace,
    /// The first characters of the key.
    pub hint: KeyHint,
    /// The hash of the key.
    pub identity: Identity,
    /// The caller, if the door knows it.
    pub actor: Option<&'a str>,
    /// The operation within the scope, if the door names one.
    pub operation: Option<&'a str>,
    /// The step.
    pub step: Step,
}

impl<'a> Event<'a> {
    /// A step with a key, without an actor.
    #[must_use]
    pub const fn new(
        namespace: &'a Namespace,
        hint: KeyHint,
        identity: Identity,
        step: Step,
    ) -> Self {
        Self {
            namespace,
            hint,
            identity,
            actor: None,
            operation: None,
            step,
        }
    }

    /// Sets [`actor`](Self::actor).
    #[must_use]
    pub fn with_actor(mut self, actor: impl Into<Option<&'a str>>) -> Self {
        self.actor = actor.into();
        self
    }

    /// Sets [`operation`](Self::operation).
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<Option<&'a str>>) -> Self {
        self.operation = operation.into();
        self
    }
}

/// A step of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A claim won.
    Claimed {
        /// The fence of the lease.
        fence: Fence,
        /// The number of the run: 1, or more after a takeover.
        attempt: u16,
        /// How long the claim took, including waiting.
        took: Duration,
        /// How long the record lives after each write.
        retention: Duration,
    },
    /// An answer was given from a record.
    Replayed {
        /// Completed or failed.
        state: State,
        /// Whether it came from the local cache of this process.
        local: bool,
        /// The 1-based number of this replay of the run's answer by this process; `None` if no
        /// local copy is kept.
        number: Option<u32>,
        /// When the key was first claimed, on the store's clock.
        requested_at: Timestamp,
    },
    /// The key was used with another payload.
    Mismatched {
        /// The fingerprint of this request.
        asked: Fingerprint,
        /// What is known of the first request.
        original: Mismatch,
    },
    /// The key was derived from a part of the payload, and another payload has the same part: the
    /// request was held.
    Held {
        /// The fingerprint of this request.
        asked: Fingerprint,
        /// What is known of the first request.
        original: Mismatch,
    },
    /// A caller began to wait for another's run.
    WaitBegan {
        /// How many callers of this process wait for the key, with this one.
        position: u32,
    },
    /// A caller stopped waiting.
    WaitEnded {
        /// How long it waited.
        waited: Duration,
        /// How many callers of this process waited for the key when this one came, with this one.
        position: u32,
    },
    /// A caller got the answer that another request with its key is running.
    Busy {
        /// Why the caller did not wait, or no longer.
        why: BusyReason,
        /// How long it waited.
        waited: Duration,
        /// The longest that it may wait.
        limit: Duration,
    },
    /// The effect was started.
    EffectBegan {
        /// The fence of its lease; `None` if it runs unprotected.
        fence: Option<Fence>,
    },
    /// The effect ended. For an effect that runs elsewhere, only the process that handed out its
    /// lease reports this, and only if the settlement reaches it.
    EffectEnded {
        /// The verdict that it reported.
        verdict: VerdictKind,
        /// How long it ran.
        took: Duration,
    },
    /// The lease was renewed.
    Renewed {
        /// The fence of the lease.
        fence: Fence,
    },
    /// The owner lost its lease, or can't be sure that it still has it.
    LeaseLost {
        /// The fence of the lost lease.
        fence: Fence,
    },
    /// The settlement was acknowledged.
    Settled {
        /// The state of the record now.
        state: State,
        /// The fence of the lease.
        fence: Fence,
        /// The size of the kept answer in bytes: head and body.
        bytes: u64,
    },
    /// The settlement could not be recorded.
    Unrecorded {
        /// The fence of the lease.
        fence: Fence,
    },
    /// A caller met an operation of unknown outcome.
    InDoubt {
        /// The fence of the run in doubt.
        fence: Fence,
    },
    /// An operator, or a program that acts for one, ended a doubt.
    Resolved {
        /// The state of the record now.
        state: State,
        /// The fence of the run that was in doubt.
        fence: Fence,
    },
    /// An operator took a lease away from its owner.
    Unlocked {
        /// The state of the record now: released, or in doubt.
        state: State,
        /// The fence of the lease.
        fence: Fence,
    },
    /// An operator reset the key.
    Deleted,
    /// Expired records were removed from the store by this process. Concerns all scopes.
    Swept {
        /// How many records.
        records: u64,
    },
    /// A recover hook was asked.
    Recovered {
        /// The fence of the run in doubt.
        fence: Fence,
        /// Whether the hook knew what happened.
        known: bool,
    },
    /// The outcome of a run in doubt was looked up where its effect would be.
    Verified {
        /// The fence of the run in doubt.
        fence: Fence,
        /// What the lookup says.
        found: LookupResult,
        /// How often it was looked up.
        attempts: u16,
        /// A keyed digest of the answer that decides; `None` if none does.
        evidence: Option<Fingerprint>,
    },
    /// A store call failed.
    StoreFailed {
        /// The call.
        call: StoreCall,
        /// The kind of error.
        kind: StoreErrorKind,
        /// Whether the call may have changed something.
        certainty: Certainty,
    },
    /// A store call ended, with or without success. Reported only to an observer that wants
    /// durations.
    StoreCalled {
        /// The call.
        call: StoreCall,
        /// How long it took.
        took: Duration,
        /// Whether the store answered. If not, [`Step::StoreFailed`] says why.
        answered: bool,
        /// What a claim was answered; `None` for other calls, and without an answer.
        claim: Option<ClaimAnswer>,
    },
    /// The circuit breaker is open, so the store was not called.
    BreakerRejected,
    /// The circuit breaker opened, half-opened or closed.
    Breaker {
        /// The state of the breaker now.
        state: BreakerState,
        /// The failures in a row so far.
        failures: u32,
        /// The failures in a row that open it.
        threshold: u32,
    },
    /// The store gave no answer, and the effect ran unprotected because the policy is to fail open.
    FailedOpen,
    /// The answer is larger than the limit, so its body is left out of the record (P27).
    Oversized {
        /// The size of the body in bytes, as far as it is known.
        bytes: u64,
        /// The largest body that is kept, in bytes.
        most: usize,
    },
    /// The engine is done with a request. Reported last, once per request, and only to an observer
    /// that wants durations.
    Answered {
        /// How the request ended.
        how: Ending,
        /// The fingerprint of its payload.
        fingerprint: Fingerprint,
        /// How long it took, including effect and waiting.
        took: Duration,
    },
    /// Observe mode decided nothing; enforce mode would have decided this.
    Observed {
        /// The decision of enforce mode.
        decision: ShadowDecision,
    },
    /// A submission with a key made a job: what leads from the key to the job.
    JobSubmitted {
        /// The id of the job, as a number.
        job: u128,
    },
    /// A door let a request without a key pass.
    Passed,
    /// A door refused a request before the store was called: the required key is missing, or can't
    /// be used.
    Refused {
        /// The problem code that the caller got.
        code: Code,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Its effect ran, and its settlement is recorded.
    Ran {
        /// The size of the kept answer in bytes: head and body.
        bytes: u64,
    },
    /// With a lease for an effect elsewhere.
    HandedOut,
    /// With the answer of an earlier run.
    Replayed {
        /// The 1-based number of this replay of the run's answer by this process, if it is known.
        number: Option<u32>,
        /// When the key was first claimed, on the store's clock.
        requested_at: Timestamp,
    },
    /// Its effect ran, or may run, without protection.
    Unprotected,
    /// Without an answer, for this problem.
    Problem(Code),
}

/// Why a caller got the answer "busy".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusyReason {
    /// The policy says not to wait.
    Policy,
    /// It waited as long as the policy allows.
    WaitedTooLong,
    /// The bound on waiters per key is reached.
    KeyWaiters,
    /// The bound on waiters per process is reached.
    ProcessWaiters,
    /// The bound on waiters per tenant is reached.
    TenantWaiters,
}

impl BusyReason {
    /// Every value, in order of [`index`](Self::index).
    pub const ALL: &'static [Self] = &[
        Self::Policy,
        Self::WaitedTooLong,
        Self::KeyWaiters,
        Self::ProcessWaiters,
        Self::TenantWaiters,
    ];

    /// The place of the value in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the value in logs, metrics and the audit trail.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::WaitedTooLong => "waited_too_long",
            Self::KeyWaiters => "key_waiters",
            Self::ProcessWaiters => "process_waiters",
            Self::TenantWaiters => "tenant_waiters",
        }
    }
}

/// The verdict of an effect, without its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerdictKind {
    /// An answer.
    Complete,
    /// A final failure.
    Fail,
    /// A failure that may be retried.
    Retry,
    /// A failure before anything happened.
    NoEffect,
    /// An unknown outcome.
    Unknown,
    /// No report, because it panicked.
    Panic,
}

impl VerdictKind {
    /// Every value, in order of [`index`](Self::index).
    pub const ALL: &'static [Self] = &[
        Self::Complete,
        Self::Fail,
        Self::Retry,
        Self::NoEffect,
        Self::Unknown,
        Self::Panic,
    ];

    /// The place of the value in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the value in logs, metrics and the audit trail.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Retry => "retry",
            Self::NoEffect => "no_effect",
            Self::Unknown => "unknown",
            Self::Panic => "panic",
        }
    }
}

/// What a lookup says of a run in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupResult {
    /// The effect happened.
    Done,
    /// The effect did not happen.
    NotDone,
    /// The lookup doesn't tell.
    Unknown,
}

impl LookupResult {
    /// The name of the value in logs, metrics and the audit trail.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotDone => "not_done",
            Self::Unknown => "unknown",
        }
    }
}

/// A call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreCall {
    /// A claim.
    Claim,
    /// A renewal.
    Renew,
    /// A settlement.
    Settle,
    /// A resolution.
    Resolve,
    /// A read of the record.
    Read,
    /// A deletion of the record, by an operator.
    Delete,
}

impl StoreCall {
    /// Every value, in order of [`index`](Self::index).
    pub const ALL: &'static [Self] = &[
        Self::Claim,
        Self::Renew,
        Self::Settle,
        Self::Resolve,
        Self::Read,
        Self::Delete,
    ];

    /// The place of the value in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the value in logs, metrics and the audit trail.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Settle => "settle",
            Self::Resolve => "resolve",
            Self::Read => "read",
            Self::Delete => "delete",
        }
    }
}

/// The state of the circuit breaker: what it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All claims.
    Closed,
    /// No claim, for a time.
    Open,
    /// One claim, as a probe.
    HalfOpen,
}

impl BreakerState {
    /// The name of the value in logs, metrics and the audit trail.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What enforce mode would have done with a request in observe mode (shadow mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShadowDecision {
    /// Answered from the record.
    Replay,
    /// Waited or refused, because another request with the key was running.
    Busy,
    /// Refused, because the payload differs.
    Mismatch,
    /// Held, because the payload resembles an earlier one.
    Held,
    /// Refused, because the key is in doubt.
    InDoubt,
    /// Refused, because the store gave no answer.
    Unavailable,
    /// Refused at the door with this code, because the key is missing or can't be used.
    Refuse(Code),
}

impl ShadowDecision {
    /// The name of the value in logs, metrics and the audit trail.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Busy => "busy",
            Self::Mismatch => "mismatch",
            Self::Held => "held",
            Self::InDoubt => "in_doubt",
            Self::Unavailable => "unavailable",
            Self::Refuse(code) => code.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics of several values are kept in the order of `ALL`.
    #[test]
    fn each_value_is_found_at_its_index() {
        fn places<T: Copy>(all: &[T], index: fn(T) -> usize) -> Vec<usize> {
            all.iter().map(|value| index(*value)).collect()
        }
        assert_eq!(places(BusyReason::ALL, BusyReason::index), [0, 1, 2, 3, 4]);
        assert_eq!(
            places(VerdictKind::ALL, VerdictKind::index),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(places(StoreCall::ALL, StoreCall::index), [0, 1, 2, 3, 4, 5]);
    }
}
