//! The protocol's state transitions as pure functions: (record found, call, time on the store's
//! clock) → (answer, record to write).
//!
//! This is `spec/protocol.md` in code. The memory store, the stores that compare and swap, and the
//! model checker all call these. Stores that decide inside a server (Redis, SQL) express the same
//! table in the server's language, and the conformance suite checks them.

use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Busy, Claim, Claimed, Grant, InDoubt, Mismatch, Renewed, Replay, Resolution};
use crate::claim::{Resolved, Restored, Settled, Settlement};
use crate::clock::Timestamp;
use crate::record::{Fence, Record, RecordError, State, Token};

/// The decision on one call: its answer, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<A> {
    /// The answer for the caller.
    pub answer: A,
    /// The record to write in the same atomic step in which it was found; `None` leaves it as it
    /// is.
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

/// Refuses a claim of a record that is encrypted under a key which the claimant doesn't have (P46).
/// Call it before
/// [`claim`], on the same record.
///
/// # Errors
/// [`RecordError`] says why the record can't be used. Nothing may be written then.
pub fn check_keys(found: Option<&Record>, ask: &Claim, now: Timestamp) -> Result<(), RecordError> {
    let is_claimable = |record: &&Record| {
        !record.is_expired(now)
            && record.state != State::Released
            && record.fingerprint == ask.fingerprint
    };
    match found.filter(is_claimable) {
        Some(record) => ask.terms.keys().check(record),
        None => Ok(()),
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
        return Decision::keep(Claimed::Mismatch(Mismatch::from_record(record))); // P7
    }
    match record.state {
        State::Running if record.token == ask.token => {
            Decision::keep(Claimed::Won(Grant::from_record(ask.identity, record))) // P6
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
        // The codec rejects a settled record without an answer. If one is made by hand, its outcome
        // is unknown.
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
    match settle_step(found, fence, token, settlement, now) {
        SettleStep::Keep(answer) => Decision::keep(answer),
        SettleStep::Write(record) => {
            Decision::write(Settled::Done, settled(record, settlement, now))
        }
    }
}

/// [`settle`] for a store that changes its record in place: afterwards, `found` is what `settle`
/// would have written.
pub(crate) fn settle_in_place(
    found: Option<&mut Record>,
    fence: Fence,
    token: Token,
    settlement: &Settlement,
    now: Timestamp,
) -> Settled {
    match settle_step(found.as_deref(), fence, token, settlement, now) {
        SettleStep::Keep(answer) => answer,
        SettleStep::Write(_) => {
            if let Some(record) = found {
                settle_record(record, settlement, now);
            }
            Settled::Done
        }
    }
}

/// What a settlement does to the record found.
enum SettleStep<'a> {
    Keep(Settled),
    Write(&'a Record),
}

fn settle_step<'a>(
    found: Option<&'a Record>,
    fence: Fence,
    token: Token,
    settlement: &Settlement,
    now: Timestamp,
) -> SettleStep<'a> {
    match owned(found, fence, token, now) {
        Some(record) if says(record, settlement) => SettleStep::Keep(Settled::Done), // P18
        Some(record) if is_open(record) => SettleStep::Write(record),                // P16, P17
        _ => SettleStep::Keep(Settled::Lost),
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

/// Decides whether a record from another store is written (P43). Its times are on this store's
/// clock.
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

/// Whether `found` is the result of restoring `record`.
fn is_copy(found: &Record, record: &Record) -> bool {
    found.fence >= record.fence
        && *found
            == Record {
                fence: found.fence,
                ..record.clone()
            }
}

/// The next fence, larger than every earlier one (P22): larger than the last one found and, if a
/// record has expired and was removed, than any fence that the store's clock can have given before.
#[must_use]
pub fn next_fence(last: Option<Fence>, now: Timestamp) -> Fence {
    let after_last = last.map_or(1, |Fence(last)| last.saturating_add(1));
    Fence(after_last.max(now.as_micros()))
}

fn owned(found: Option<&Record>, fence: Fence, token: Token, now: Timestamp) -> Option<&Record> {
    found.filter(|record| !record.is_expired(now) && record.is_owned_by(fence, token))
}

/// Whether the owner may still settle: the record is running, or in doubt because the owner was
/// silent.
const fn is_open(record: &Record) -> bool {
    matches!(record.state, State::Running | State::InDoubt)
}

fn says(record: &Record, settlement: &Settlement) -> bool {
    record.state == settlement.state() && record.answer.as_ref() == settlement.answer()
}

fn settled(record: &Record, settlement: &Settlement, now: Timestamp) -> Record {
    let mut record = record.clone();
    settle_record(&mut record, settlement, now);
    record
}

fn settle_record(record: &mut Record, settlement: &Settlement, now: Timestamp) {
    record.state = settlement.state();
    record.answer = settlement.answer().cloned();
    // Only a record that may run again keeps its checkpoint.
    if !matches!(settlement, Settlement::Doubt) {
        record.checkpoint = Bytes::new();
    }
    record.written_at = now;
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

/// The next run of a key whose owner crashed. Crash policy and maximum of attempts stay those of
/// the first claim (P13).
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
    let grant = Grant::from_record(ask.identity, &record);
    Decision::write(Claimed::Won(grant), record)
}

fn busy(record: &Record, now: Timestamp) -> Busy {
    Busy {
        since: now.since(record.created_at),
        attempt: record.attempt,
        retry_after: record.lease_end().since(now),
    }
}

/// The answer to a claim that lost its compare-and-swap too many times (P4). Another owner ran
/// meanwhile, and may or may not still run, so the caller should retry soon.
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
        fence: record.fence,
        token: record.token,
        requested_at: record.created_at,
        settled_at: record.written_at,
        expires_in: record.expires_at().since(now),
    })
}
