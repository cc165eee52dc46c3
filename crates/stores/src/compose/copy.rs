//! [`copy_record`]: copies one record from a source store to a target store, for a live migration (P43).
//!
//! A copy that is interrupted, repeated or late leaves a record that the next run finds and completes.

use std::time::Duration;

use semel_core::claim::{Grant, Restored, Settled, Settlement};
use semel_core::clock::Timestamp;
use semel_core::identity::Identity;
use semel_core::record::{Record, State};
use semel_core::store::{StoreAdmin, StoreResult};

/// The result of copying one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyOutcome {
    /// The record was copied.
    Copied,
    /// The target already had the record, or a later state of it.
    Present,
    /// The record was open in the target although the source had settled it. The target has the source's state now.
    Repaired,
    /// An owner runs under a lease that only one of the stores has. The next run of the copy sees the result.
    Running,
    /// The record expired before it was copied.
    Expired,
    /// The two stores have different answers. Neither was changed.
    Conflict,
}

/// What to do first with a record: write it, or compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyMode {
    /// Write it: most records are missing in the target.
    Copying,
    /// Compare it: most records are in the target already.
    Comparing,
}

/// Copies `record`, as it was read, to the store `to`. `clocks` is the same moment on the clock of the source and of `to`.
///
/// # Errors
/// If `to` doesn't answer. The same call may be made again.
pub async fn copy_record(
    to: &dyn StoreAdmin,
    pass: CopyMode,
    identity: &Identity,
    record: &Record,
    clocks: (Timestamp, Timestamp),
) -> StoreResult<CopyOutcome> {
    let (here, there) = clocks;
    let moved = Record {
        created_at: shift(record.created_at, here, there),
        written_at: shift(record.written_at, here, there),
        ..record.clone()
    };
    // Writing a copied record once more succeeds without a change, and would be reported as a new copy.
    if pass == CopyMode::Comparing
        && let Some(found) = to.read(identity).await?
    {
        return reconcile(to, identity, &moved, &found, there).await;
    }
    let live = record.state == State::Running && !record.is_lapsed(here);
    if !live && to.restore(identity, &moved).await? == Restored::Written {
        return Ok(CopyOutcome::Copied);
    }
    match to.read(identity).await? {
        None if live => Ok(CopyOutcome::Running),
        None => Ok(CopyOutcome::Expired),
        Some(found) => reconcile(to, identity, &moved, &found, there).await,
    }
}

/// Decides between the source's record and the one that the target already has.
async fn reconcile(
    to: &dyn StoreAdmin,
    identity: &Identity,
    moved: &Record,
    found: &Record,
    there: Timestamp,
) -> StoreResult<CopyOutcome> {
    // Our record expired after it was listed, and the key has been used again in the target: keep the target's.
    if found.created_at >= moved.expires_at() {
        return Ok(CopyOutcome::Present);
    }
    let is_over = |record: &Record| matches!(record.state, State::Completed | State::Failed);
    let idle = found.state != State::Running || found.is_lapsed(there);
    let is_free = found.state == State::Released;
    let same_run = moved.token == found.token;
    match (is_over(moved), is_over(found)) {
        (true, true) => {
            let same = moved.state == found.state
                && moved.fingerprint == found.fingerprint
                && moved.answer == found.answer;
            Ok(if same {
                CopyOutcome::Present
            } else {
                CopyOutcome::Conflict
            })
        }
        // The owner settled in the source, and crashed before it settled in the target.
        (true, false) if same_run => repair(to, identity, moved, found).await,
        // A run is open in the target. Its owner, which uses both stores, gets the answer from the source.
        (true, false) if !idle => Ok(CopyOutcome::Running),
        // The target has an earlier state of the source: a record that was copied too late, or the lease of an owner that
        // crashed after it had claimed both. Later runs were in the source.
        (true, false) if is_free || found.written_at <= moved.written_at => {
            replace(to, identity, moved, found).await
        }
        (true, false) => Ok(CopyOutcome::Conflict),
        // The target has the same state or a later one. Or it has fewer attempts of the same run: writing those would take
        // the lease from an owner that may be about to renew it.
        (false, _) => Ok(CopyOutcome::Present),
    }
}

async fn repair(
    to: &dyn StoreAdmin,
    identity: &Identity,
    moved: &Record,
    found: &Record,
) -> StoreResult<CopyOutcome> {
    let Some(answer) = moved.answer.clone() else {
        return Ok(CopyOutcome::Conflict);
    };
    let settlement = match moved.state {
        State::Failed => Settlement::Fail(answer),
        _ => Settlement::Complete(answer),
    };
    let lease = Grant::from_record(*identity, found);
    Ok(match to.settle(&lease, &settlement).await? {
        Settled::Done => CopyOutcome::Repaired,
        // Another owner has it now: the next run of the copy sees the result.
        Settled::Lost => CopyOutcome::Running,
    })
}

/// Replaces a record without a running owner. Nodes that use both stores also ask the source, so an owner that wins the key
/// between the two calls learns the answer from there.
async fn replace(
    to: &dyn StoreAdmin,
    identity: &Identity,
    moved: &Record,
    found: &Record,
) -> StoreResult<CopyOutcome> {
    let lease = Grant::from_record(*identity, found);
    let free = to.settle(&lease, &Settlement::Release).await? == Settled::Done;
    let written = free && to.restore(identity, moved).await? == Restored::Written;
    Ok(if written {
        CopyOutcome::Repaired
    } else {
        CopyOutcome::Running
    })
}

/// Converts `at` to the clock that shows `there` while the other shows `here`.
fn shift(at: Timestamp, here: Timestamp, there: Timestamp) -> Timestamp {
    if there >= here {
        at.plus(there.since(here))
    } else {
        let back = here.since(there);
        Timestamp::from_micros(at.as_micros().saturating_sub(micros(back)))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_move_with_the_clock() {
        let [at, early, late] = [1_000, 5_000, 5_700].map(Timestamp::from_micros);
        assert_eq!(shift(at, early, late).as_micros(), 1_700);
        assert_eq!(shift(at, late, early).as_micros(), 300);
        assert_eq!(shift(at, early, early), at);
    }
}
