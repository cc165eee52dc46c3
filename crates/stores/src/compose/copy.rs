//! [`copy_record`]: copies one record from a source store to a target store, for a live migration
//! (P43).
//!
//! A copy that is interrupted, repeated or late leaves a record that the next run finds and
//! completes.
//!
//! Both stores are given without encryption: an encrypted record is copied as it is, because it is
//! bound to its key and run, not to its store. The keys are needed where two stores have encrypted
//! the same answer under their own fences: to compare the two, and to settle an answer in the
//! target under the target's fence.

use std::time::Duration;

use semel_core::claim::{Grant, Restored, Settled, Settlement};
use semel_core::clock::Timestamp;
use semel_core::identity::Identity;
use semel_core::record::{Record, State};
use semel_core::store::{StoreAdmin, StoreResult};

use crate::encrypted::{Keyring, StoredAnswer};

/// The result of copying one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyOutcome {
    /// The record was copied.
    Copied,
    /// The target already had the record, or a later state of it.
    Present,
    /// The record was open in the target although the source had settled it. The target has the
    /// source's state now.
    Repaired,
    /// An owner runs under a lease that only one of the stores has. The next run of the copy sees
    /// the result.
    Running,
    /// The record expired before it was copied.
    Expired,
    /// The two stores have different answers. Neither was changed.
    Conflict,
    /// The two stores have encrypted answers, and these keys decrypt at most one. Neither was
    /// changed.
    Unreadable,
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

/// Copies `record`, as it was read, to the store `to`. `clocks` is the same moment on the clock of
/// the source and of `to`. `keys` decrypt the answers of both stores.
///
/// # Errors
/// If `to` doesn't answer. The same call may be made again.
pub async fn copy_record(
    to: &dyn StoreAdmin,
    pass: CopyMode,
    identity: &Identity,
    record: &Record,
    clocks: (Timestamp, Timestamp),
    keys: &Keyring,
) -> StoreResult<CopyOutcome> {
    let (here, there) = clocks;
    let moved = Record {
        created_at: shift(record.created_at, here, there),
        written_at: shift(record.written_at, here, there),
        ..record.clone()
    };
    // Writing a copied record once more succeeds without a change, and would be reported as a new
    // copy.
    if pass == CopyMode::Comparing
        && let Some(found) = to.read(identity).await?
    {
        return Reconciliation::of(to, identity, keys, &moved, &found)
            .decide(there)
            .await;
    }
    let live = record.state == State::Running && !record.is_lapsed(here);
    if !live && to.restore(identity, &moved).await? == Restored::Written {
        return Ok(CopyOutcome::Copied);
    }
    match to.read(identity).await? {
        None if live => Ok(CopyOutcome::Running),
        None => Ok(CopyOutcome::Expired),
        Some(found) => {
            Reconciliation::of(to, identity, keys, &moved, &found)
                .decide(there)
                .await
        }
    }
}

/// The source's record, and the one that the target already has.
struct Reconciliation<'a> {
    to: &'a dyn StoreAdmin,
    identity: &'a Identity,
    keys: &'a Keyring,
    moved: &'a Record,
    found: &'a Record,
}

impl<'a> Reconciliation<'a> {
    const fn of(
        to: &'a dyn StoreAdmin,
        identity: &'a Identity,
        keys: &'a Keyring,
        moved: &'a Record,
        found: &'a Record,
    ) -> Self {
        Self {
            to,
            identity,
            keys,
            moved,
            found,
        }
    }

    /// Decides between the two.
    async fn decide(&self, there: Timestamp) -> StoreResult<CopyOutcome> {
        let (moved, found) = (self.moved, self.found);
        // Our record expired after it was listed, and the key has been used again in the target:
        // keep the target's.
        if found.created_at >= moved.expires_at() {
            return Ok(CopyOutcome::Present);
        }
        let is_over = |record: &Record| matches!(record.state, State::Completed | State::Failed);
        let idle = found.state != State::Running || found.is_lapsed(there);
        let is_free = found.state == State::Released;
        let same_run = moved.token == found.token;
        match (is_over(moved), is_over(found)) {
            (true, true) => Ok(self.compare()),
            // The owner settled in the source, and crashed before it settled in the target.
            (true, false) if same_run => self.repair().await,
            // A run is open in the target. Its owner, which uses both stores, gets the answer from
            // the source.
            (true, false) if !idle => Ok(CopyOutcome::Running),
            // The target has an earlier state of the source: a record that was copied too late, or
            // the lease of an owner that crashed after it had claimed both. Later runs were in the
            // source.
            (true, false) if is_free || found.written_at <= moved.written_at => {
                self.replace().await
            }
            (true, false) => Ok(CopyOutcome::Conflict),
            // The target has the same state or a later one. Or it has fewer attempts of the same
            // run: writing those would take the lease from an owner that may be about to renew it.
            (false, _) => Ok(CopyOutcome::Present),
        }
    }

    /// Compares two settled records by what their answers say.
    fn compare(&self) -> CopyOutcome {
        let (moved, found) = (self.moved, self.found);
        if moved.state != found.state || moved.fingerprint != found.fingerprint {
            return CopyOutcome::Conflict;
        }
        if moved.answer == found.answer {
            return CopyOutcome::Present;
        }
        let [moved, found] = [moved, found].map(|record| StoredAnswer::of(self.identity, record));
        match moved.says_the_same(&found, self.keys) {
            Ok(true) => CopyOutcome::Present,
            Ok(false) => CopyOutcome::Conflict,
            Err(_) => CopyOutcome::Unreadable,
        }
    }

    /// Settles the target's run as the source's. The answer is encrypted under the target's fence,
    /// which may be smaller; one whose body is elsewhere can't be, and comes with its whole record.
    async fn repair(&self) -> StoreResult<CopyOutcome> {
        if self.moved.answer.is_none() {
            return Ok(CopyOutcome::Conflict);
        }
        let answer = match StoredAnswer::of(self.identity, self.moved).under(self.found, self.keys)
        {
            Ok(Some(answer)) => answer,
            Ok(None) => return self.replace().await,
            Err(_) => return Ok(CopyOutcome::Unreadable),
        };
        let settlement = match self.moved.state {
            State::Failed => Settlement::Fail(answer),
            _ => Settlement::Complete(answer),
        };
        let lease = Grant::from_record(*self.identity, self.found);
        Ok(match self.to.settle(&lease, &settlement).await? {
            Settled::Done => CopyOutcome::Repaired,
            // Another owner has it now: the next run of the copy sees the result.
            Settled::Lost => CopyOutcome::Running,
        })
    }

    /// Replaces a record without a running owner. Nodes that use both stores also ask the source,
    /// so an owner that wins the key between the two calls learns the answer from there.
    async fn replace(&self) -> StoreResult<CopyOutcome> {
        let lease = Grant::from_record(*self.identity, self.found);
        let free = self.to.settle(&lease, &Settlement::Release).await? == Settled::Done;
        let written =
            free && self.to.restore(self.identity, self.moved).await? == Restored::Written;
        Ok(if written {
            CopyOutcome::Repaired
        } else {
            CopyOutcome::Running
        })
    }
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
