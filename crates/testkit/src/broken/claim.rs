//! Claims, decided by the protocol, with a bug.

use std::time::Duration;

use bytes::Bytes;
use semel_core::protocol::{self, Decision};
use semel_core::{
    Busy, Claim, Claimed, CrashPolicy, Fence, Fingerprint, Grant, Mismatch, Record, State,
    Timestamp,
};

use super::Bug;

/// What a dropped fingerprint leaves behind: nothing to compare with.
pub(super) const NO_FINGERPRINT: Fingerprint = Fingerprint::from_bytes([0; Fingerprint::BYTES]);

/// Decides a claim.
pub(super) fn claim(
    bug: Option<Bug>,
    found: Option<&Record>,
    ask: &Claim,
    now: Timestamp,
) -> Decision<Claimed> {
    let Some(bug) = bug else {
        return protocol::claim(found, ask, now);
    };
    let seen = found.and_then(|record| mistaken(bug, record, ask, now));
    let ask = overlooked(bug, seen.as_ref(), ask, now);
    let decision = protocol::claim(seen.as_ref(), &ask, now);
    mishandled(bug, found, &ask, now, decision)
}

/// The record as a store with this bug sees it.
fn mistaken(bug: Bug, found: &Record, ask: &Claim, now: Timestamp) -> Option<Record> {
    let mut record = found.clone();
    let lapsed = record.is_lapsed(now);
    match bug {
        Bug::LeaseIsTtl if lapsed => return None,
        Bug::TakeoverBeforeLapse => record.lease /= 2,
        Bug::RenewalNotCounted => record.written_at = record.created_at,
        Bug::NoTakeover if lapsed && record.may_take_over() => record.written_at = now,
        Bug::CheckpointLostOnTakeover if lapsed => record.checkpoint = Bytes::new(),
        Bug::TakeoverStartsAnew if lapsed => record.created_at = now,
        Bug::TakeoverUnderHold => record.crash = CrashPolicy::Takeover,
        Bug::AttemptsNotCounted => record.attempt = 0,
        Bug::DoubtIsFree if record.state == State::InDoubt => record.state = State::Released,
        Bug::AskersPolicyWins => record.crash = ask.terms.crash(),
        Bug::AskersAttemptsWin => record.max_attempts = ask.terms.max_attempts(),
        Bug::ResentClaimIsBusy => record.token.0 ^= 1,
        Bug::ResentClaimRunsAgain if record.token == ask.token => record.state = State::Running,
        Bug::ExpiredIsReplayed if record.answer.is_some() => record.retention = Duration::MAX,
        _ => {}
    }
    Some(record)
}

/// The claim as a store with this bug looks at it: a payload that is not compared is never another.
fn overlooked(bug: Bug, found: Option<&Record>, ask: &Claim, now: Timestamp) -> Claim {
    let Some(record) = found else {
        return ask.clone();
    };
    let overlooks = match bug {
        Bug::MismatchIgnoredWhileRunning => {
            record.state == State::Running && !record.is_lapsed(now)
        }
        Bug::MismatchIgnoredWhenSettled => record.answer.is_some(),
        Bug::TakeoverIgnoresPayload => record.is_lapsed(now),
        _ => record.fingerprint == NO_FINGERPRINT,
    };
    let fingerprint = if overlooks {
        record.fingerprint
    } else {
        ask.fingerprint
    };
    Claim {
        fingerprint,
        ..ask.clone()
    }
}

/// What a store with this bug does about the protocol's decision.
fn mishandled(
    bug: Bug,
    found: Option<&Record>,
    ask: &Claim,
    now: Timestamp,
    mut decision: Decision<Claimed>,
) -> Decision<Claimed> {
    match (bug, &mut decision.answer) {
        (Bug::OwnerByRowsAffected, Claimed::Busy(_)) => {
            decision.answer = Claimed::Won(shared(found, ask));
        }
        (Bug::ReleasedKeepsItsPayload, Claimed::Won(_)) => {
            let released = found.filter(|r| r.state == State::Released && !r.is_expired(now));
            if released.is_some_and(|record| record.fingerprint != ask.fingerprint) {
                return Decision {
                    answer: Claimed::Mismatch(Mismatch::local(ask.fingerprint)),
                    write: None,
                };
            }
        }
        (Bug::UnknownRetryIsBusy, Claimed::Won(_)) if ask.retry && found.is_none() => {
            return Decision {
                answer: Claimed::Busy(Busy {
                    since: Duration::ZERO,
                    attempt: 1,
                    retry_after: ask.terms.lease(),
                }),
                write: None,
            };
        }
        (Bug::FailureReplayedAsAnswer, Claimed::Replay(replay)) => replay.state = State::Completed,
        (Bug::ReplayProlongs, Claimed::Replay(_)) => {
            decision.write = found.map(|record| Record {
                written_at: now,
                ..record.clone()
            });
        }
        (Bug::BusyForAWholeLease, Claimed::Busy(busy)) => {
            busy.retry_after = found.map_or(busy.retry_after, |record| record.lease);
        }
        (Bug::ReleasedKeepsItsTerms, Claimed::Won(_)) => {
            let released = found.filter(|record| record.state == State::Released);
            if let (Some(found), Some(written)) = (released, &mut decision.write) {
                written.crash = found.crash;
                written.max_attempts = found.max_attempts;
            }
        }
        (_, Claimed::Won(_)) => refence(bug, found, now, &mut decision),
        _ => {}
    }
    decision
}

/// The lease of whoever owns the record, given to somebody else.
fn shared(found: Option<&Record>, ask: &Claim) -> Grant {
    let mut grant = Grant::first_run(ask, found.map_or(Fence(0), |record| record.fence));
    grant.attempt = found.map_or(1, |record| record.attempt);
    grant
}

/// Gives a new lease the fence that a store with this bug gives it.
fn refence(bug: Bug, found: Option<&Record>, now: Timestamp, decision: &mut Decision<Claimed>) {
    let (Claimed::Won(grant), Some(written)) = (&mut decision.answer, &mut decision.write) else {
        return;
    };
    let expired = found.is_some_and(|record| record.is_expired(now));
    let fence = match (bug, found) {
        (Bug::FenceRestartsAfterRelease, Some(r)) if r.state == State::Released => Fence(1),
        (Bug::FenceRestartsAfterExpiry, Some(_)) if expired => Fence(1),
        (Bug::FenceForgottenWithTheRecord, Some(record)) => Fence(record.fence.0 + 1),
        (Bug::FenceForgottenWithTheRecord, None) => Fence(1),
        (Bug::TakeoverKeepsTheFence, Some(record)) if record.is_lapsed(now) => record.fence,
        _ => return,
    };
    (grant.fence, written.fence) = (fence, fence);
}
