//! The protocol's transitions as pure functions: what is found, what is asked, what time it is on the
//! store's clock → what to answer, and what to write.
//!
//! This is `spec/protocol.md` in code. The memory store, stores that read-decide-compare-and-swap, and
//! the checked model all call these; stores that decide inside a server (Redis, SQL) state the same
//! table in the server's words and are held to it by the conformance suite.

use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Busy, Claim, Claimed, Grant, InDoubt, Renewed, Replay, Resolution};
use crate::claim::{Resolved, Restored, Settled, Settlement};
use crate::clock::Timestamp;
use crate::record::{Fence, Record, State, Token};

/// What to answer, and what to write (nothing: leave the record as it is).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<A> {
    /// For the asker.
    pub answer: A,
    /// For the store, to be written in the same atomic step in which the record was found.
    pub write: Option<Record>,
}

impl<A> Decision<A> {
    const fn keep(answer: A) -> Self {
        Self {
            answer,
            write: None,
        }
    }

    const fn write(answer: A, record: Record) -> Self {
        Self {
            answer,
            write: Some(record),
        }
    }
}

/// Decides a claim. `found` is the record under the claim's identity, expired or not.
#[must_use]
pub fn claim(found: Option<&Record>, ask: &Claim, now: Timestamp) -> Decision<Claimed> {
    let last_fence = found.map(|record| record.fence);
    let live = found.filter(|record| !record.is_expired(now));
    let Some(record) = live.filter(|record| record.state != State::Released) else {
        return win(first_run(ask, next_fence(last_fence, now), now), ask); // P5
    };
    if record.fingerprint != ask.fingerprint {
        return Decision::keep(Claimed::Mismatch); // P7
    }
    match record.state {
        State::Running if record.token == ask.token => {
            Decision::keep(Claimed::Won(grant(record, ask))) // P6
        }
        State::Running if !record.is_lapsed(now) => {
            Decision::keep(Claimed::Busy(busy(record, now)))
        } // P8
        State::Running if record.may_take_over() => win(takeover(record, ask, now), ask), // P9
        State::Running => {
            let record = Record {
                state: State::InDoubt,
                written_at: now,
                ..record.clone()
            };
            Decision::write(Claimed::InDoubt(in_doubt(&record)), record) // P10
        }
        State::InDoubt => Decision::keep(Claimed::InDoubt(in_doubt(record))), // P11
        // A settled record without an answer can't be read from a store (the codec refuses it);
        // were one made by hand, its outcome would not be known.
        State::Completed | State::Failed | State::Released => Decision::keep(
            replay(record, now).map_or_else(|| Claimed::InDoubt(in_doubt(record)), Claimed::Replay), // P12
        ),
    }
}

/// Decides a renewal (P14, P15).
#[must_use]
pub fn renew(
    found: Option<&Record>,
    fence: Fence,
    token: Token,
    checkpoint: Option<&Bytes>,
    now: Timestamp,
) -> Decision<Renewed> {
    match owned(found, fence, token, now) {
        Some(record) if record.state == State::Running => {
            let checkpoint = checkpoint.unwrap_or(&record.checkpoint).clone();
            let record = Record {
                checkpoint,
                written_at: now,
                ..record.clone()
            };
            Decision::write(Renewed::Held, record)
        }
        _ => Decision::keep(Renewed::Lost),
    }
}

/// Decides a settlement (P16, P17, P18).
#[must_use]
pub fn settle(
    found: Option<&Record>,
    fence: Fence,
    token: Token,
    settlement: &Settlement,
    now: Timestamp,
) -> Decision<Settled> {
    match owned(found, fence, token, now) {
        Some(record) if says(record, settlement) => Decision::keep(Settled::Done), // P18
        Some(record) if is_open(record) => {
            Decision::write(Settled::Done, settled(record, settlement, now)) // P16, P17
        }
        _ => Decision::keep(Settled::Lost),
    }
}

/// Decides an operator's resolution (P19).
#[must_use]
pub fn resolve(
    found: Option<&Record>,
    fence: Fence,
    resolution: &Resolution,
    now: Timestamp,
) -> Decision<Resolved> {
    let live = found.filter(|record| !record.is_expired(now) && record.fence == fence);
    let settlement = Settlement::from(resolution.clone());
    match live {
        Some(record) if says(record, &settlement) => Decision::keep(Resolved::Done),
        Some(record) if record.is_in_doubt(now) => {
            Decision::write(Resolved::Done, settled(record, &settlement, now))
        }
        _ => Decision::keep(Resolved::NotInDoubt),
    }
}

/// Decides what becomes of a record from another store (P43). Its times are on this store's clock.
#[must_use]
pub fn restore(found: Option<&Record>, record: &Record, now: Timestamp) -> Decision<Restored> {
    let live = found.filter(|found| !found.is_expired(now));
    if live.is_some_and(|found| is_copy(found, record)) {
        return Decision::keep(Restored::Written);
    }
    let taken = live.is_some_and(|found| found.state != State::Released);
    if taken || record.is_expired(now) {
        return Decision::keep(Restored::Kept);
    }
    let fence = found.map_or(record.fence, |found| found.fence.max(record.fence));
    let record = Record {
        fence,
        ..record.clone()
    };
    Decision::write(Restored::Written, record)
}

/// Whether `found` is what restoring `record` leaves.
fn is_copy(found: &Record, record: &Record) -> bool {
    found.fence >= record.fence
        && *found
            == Record {
                fence: found.fence,
                ..record.clone()
            }
}

/// Larger than every fence before (P22): than the last one found, and, where a record expired and was
/// removed, than what the store's clock could have given out then.
#[must_use]
pub fn next_fence(last: Option<Fence>, now: Timestamp) -> Fence {
    let after_last = last.map_or(1, |Fence(last)| last.saturating_add(1));
    Fence(after_last.max(now.as_micros()))
}

fn owned(found: Option<&Record>, fence: Fence, token: Token, now: Timestamp) -> Option<&Record> {
    found.filter(|record| !record.is_expired(now) && record.is_owned_by(fence, token))
}

/// Whether a settlement may still be written: running, or in doubt and the owner came back to tell.
const fn is_open(record: &Record) -> bool {
    matches!(record.state, State::Running | State::InDoubt)
}

fn says(record: &Record, settlement: &Settlement) -> bool {
    record.state == settlement.state() && record.answer.as_ref() == settlement.answer()
}

fn settled(record: &Record, settlement: &Settlement, now: Timestamp) -> Record {
    Record {
        state: settlement.state(),
        answer: settlement.answer().cloned(),
        // Only a record that somebody may yet work on keeps its progress.
        checkpoint: match settlement {
            Settlement::Doubt => record.checkpoint.clone(),
            _ => Bytes::new(),
        },
        written_at: now,
        ..record.clone()
    }
}

fn first_run(ask: &Claim, fence: Fence, now: Timestamp) -> Record {
    Record {
        seal: ask.identity.seal(),
        state: State::Running,
        crash: ask.terms.crash(),
        fence,
        token: ask.token,
        attempt: 1,
        max_attempts: ask.terms.max_attempts(),
        fingerprint: ask.fingerprint,
        secret_id: ask.secret_id,
        lease: ask.terms.lease(),
        retention: ask.terms.retention(),
        created_at: now,
        written_at: now,
        namespace: ask.namespace.clone(),
        hint: ask.hint,
        checkpoint: Bytes::new(),
        answer: None,
    }
}

/// The next run of a key whose owner vanished. Policy and attempts stay the first claim's (P13).
fn takeover(record: &Record, ask: &Claim, now: Timestamp) -> Record {
    Record {
        fence: next_fence(Some(record.fence), now),
        token: ask.token,
        attempt: record.attempt + 1,
        lease: ask.terms.lease(),
        retention: ask.terms.retention(),
        written_at: now,
        ..record.clone()
    }
}

fn win(record: Record, ask: &Claim) -> Decision<Claimed> {
    Decision::write(Claimed::Won(grant(&record, ask)), record)
}

fn grant(record: &Record, ask: &Claim) -> Grant {
    Grant {
        identity: ask.identity,
        fence: record.fence,
        token: record.token,
        attempt: record.attempt,
        checkpoint: record.checkpoint.clone(),
        lease: record.lease,
        crash: record.crash,
        memo: Bytes::new(),
    }
}

fn busy(record: &Record, now: Timestamp) -> Busy {
    Busy {
        since: now.since(record.created_at),
        attempt: record.attempt,
        retry_after: record.lease_end().since(now),
    }
}

/// The answer to a claim that others overtook again and again (P4). One of them ran it meanwhile; whether it still does is
/// not known, so it is soon worth asking again.
#[must_use]
pub const fn overtaken() -> Claimed {
    Claimed::Busy(Busy {
        since: Duration::ZERO,
        attempt: 1,
        retry_after: Duration::from_secs(1),
    })
}

fn in_doubt(record: &Record) -> InDoubt {
    InDoubt {
        fence: record.fence,
        attempt: record.attempt,
        checkpoint: record.checkpoint.clone(),
    }
}

/// The answer kept in a completed or failed record.
#[must_use]
pub fn replay(record: &Record, now: Timestamp) -> Option<Replay> {
    Some(Replay {
        state: record.state,
        answer: record.answer.clone()?,
        attempt: record.attempt,
        requested_at: record.created_at,
        settled_at: record.written_at,
        expires_in: record.expires_at().since(now),
    })
}
