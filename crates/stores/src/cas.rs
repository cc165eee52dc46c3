//! The compare-and-swap loop of every store whose records change in two steps: read, then replace
//! what was read.
//!
//! [`drive`] reads the record, lets [`protocol`](semel_core::protocol) decide, and replaces exactly
//! the record that was read. A swap that loses is followed by another read. The last step is always
//! a read, because only a read finds a write whose reply was lost.
//!
//! A store implements [`Cell`] and gets the retry bound, and the rule for what is known after a
//! lost reply (P28).

#![cfg_attr(
    not(all(feature = "object", feature = "redis", feature = "postgres")),
    allow(dead_code, reason = "each store uses a part of it")
)]

use std::future::{Future, ready};

use semel_core::protocol::Decision;
use semel_core::store::StoreResult;
use semel_core::{Certainty, Record, StoreError, StoreErrorKind, Timestamp};

/// The place of one record, read and replaced by compare-and-swap.
pub(crate) trait Cell: Sync {
    /// Names exactly the record that was read.
    type Version: Send + Sync;
    /// What a successful write gives.
    type Written: Send;

    /// How many decisions are made before the change counts as overtaken.
    const ATTEMPTS: u32;

    /// Reads the record, expired or not.
    fn read(&self) -> impl Future<Output = StoreResult<Snapshot<Self::Version>>> + Send;

    /// Writes `new` if the record is still the one in `seen`.
    fn swap(
        &self,
        seen: &Snapshot<Self::Version>,
        new: Record,
    ) -> impl Future<Output = StoreResult<Swap<Self>>> + Send;

    /// Whether a decision that writes nothing may be acted on; `false` reads again.
    fn confirm(
        &self,
        _seen: &Snapshot<Self::Version>,
    ) -> impl Future<Output = StoreResult<bool>> + Send {
        ready(Ok(true))
    }

    /// Waits after a swap that lost, before the next read. `attempt` counts from 0.
    fn back_off(&self, _attempt: u32) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// What one read found.
pub(crate) struct Snapshot<V> {
    /// The record and its version.
    pub(crate) found: Option<(Record, V)>,
    /// The time to decide by.
    pub(crate) now: Timestamp,
}

impl<V> Snapshot<V> {
    /// No record.
    pub(crate) const fn absent(now: Timestamp) -> Self {
        Self { found: None, now }
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.found.as_ref().map(|(record, _)| record)
    }

    pub(crate) fn version(&self) -> Option<&V> {
        self.found.as_ref().map(|(_, version)| version)
    }
}

/// How a swap ended.
pub(crate) enum Swap<C: Cell + ?Sized> {
    /// Written.
    Done(C::Written),
    /// Another write came first; with the record that is there now, if the server said so.
    Lost(Option<Snapshot<C::Version>>),
    /// The reply was lost, and a read can tell whether the write was applied.
    Uncertain(StoreError),
}

/// What is known before the first decision.
pub(crate) enum Start<V> {
    /// Nothing is known: read first.
    Read {
        /// Whether this call has already sent a write.
        write_sent: bool,
    },
    /// A state of the past. It may lead to a swap, but it can't decide without one.
    Remembered(Snapshot<V>),
    /// The current state.
    Current {
        /// What was read.
        seen: Snapshot<V>,
        /// Whether this call has already sent a write.
        write_sent: bool,
    },
}

/// How a change ended.
pub(crate) struct Change<C: Cell, A> {
    pub(crate) answer: A,
    /// What was decided on.
    pub(crate) seen: Snapshot<C::Version>,
    /// What the write gave; `None` if nothing was written.
    pub(crate) written: Option<C::Written>,
}

/// Changes a record by the decision of `decide`. `None` if other writers came first every time.
pub(crate) async fn drive<C: Cell, A>(
    cell: &C,
    start: Start<C::Version>,
    decide: impl Fn(Option<&Record>, Timestamp) -> Decision<A>,
) -> StoreResult<Option<Change<C, A>>> {
    let (known, mut is_current, mut write_sent) = match start {
        Start::Read { write_sent } => (None, true, write_sent),
        Start::Remembered(seen) => (Some(seen), false, false),
        Start::Current { seen, write_sent } => (Some(seen), true, write_sent),
    };
    let mut uncertain = None;
    let mut seen = match known {
        Some(seen) => seen,
        None => read(cell, write_sent, uncertain.as_ref()).await?,
    };
    for attempt in 0..C::ATTEMPTS {
        let Decision { answer, write } = decide(seen.record(), seen.now);
        let mut next = None;
        match write {
            None if is_current && cell.confirm(&seen).await? => {
                return Ok(Some(Change {
                    answer,
                    seen,
                    written: None,
                }));
            }
            None => {}
            Some(_) if attempt + 1 == C::ATTEMPTS => break,
            Some(record) => {
                write_sent = true;
                match cell.swap(&seen, record).await {
                    Ok(Swap::Done(written)) => {
                        return Ok(Some(Change {
                            answer,
                            seen,
                            written: Some(written),
                        }));
                    }
                    Ok(Swap::Lost(found)) => next = found,
                    Ok(Swap::Uncertain(error)) => uncertain = Some(error),
                    Err(error) => return Err(unknown_if(uncertain.is_some(), error)),
                }
                if next.is_none() {
                    cell.back_off(attempt).await;
                }
            }
        }
        seen = match next {
            Some(seen) => seen,
            None => read(cell, write_sent, uncertain.as_ref()).await?,
        };
        is_current = true;
    }
    uncertain.map_or(Ok(None), Err)
}

async fn read<C: Cell>(
    cell: &C,
    write_sent: bool,
    uncertain: Option<&StoreError>,
) -> StoreResult<Snapshot<C::Version>> {
    let seen = cell.read().await;
    seen.map_err(|error| match uncertain {
        Some(_) => unknown_if(true, error),
        None => read_back_failed(write_sent, error),
    })
}

/// If an earlier attempt may have been applied, the outcome of the whole call is unknown, even if
/// this attempt certainly failed (P28).
pub(crate) fn unknown_if(earlier_attempt_uncertain: bool, mut error: StoreError) -> StoreError {
    if earlier_attempt_uncertain {
        error.certainty = Certainty::Unknown;
    }
    error
}

/// The error of a read that should have confirmed a write. If a write was sent, its outcome is
/// unknown: a write that matched nothing may have met the result of its own unanswered attempt
/// (P28).
pub(crate) fn read_back_failed(write_sent: bool, error: StoreError) -> StoreError {
    unknown_if(write_sent && error.is_transient(), error)
}

/// The error of a change that lost every compare-and-swap.
pub(crate) fn overtaken() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        Certainty::Unknown,
        "overtaken too often",
    )
}

#[cfg(test)]
mod tests;
