//! [`copy_record`]: one record, from the store that has it to the store that gets it (P43), while requests go on.
//!
//! Whatever is cut short, sent again or arrives late leaves a record that the next run finds and finishes.

use std::time::Duration;

use bytes::Bytes;

use semel_core::claim::{Grant, Restored, Settled, Settlement};
use semel_core::clock::Timestamp;
use semel_core::identity::Identity;
use semel_core::record::{Record, State};
use semel_core::store::{StoreAdmin, StoreResult};

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyOutcome {
    /// Brought over.
    Copied,
    /// Was there already, or the other store knows more.
    There,
    /// Was open there, though it had been settled here: is as here now.
    Mended,
    /// Somebody runs it now, under a lease that only one of the stores has. The next run sees what became of it.
    Running,
    /// Expired on the way.
    Expired,
    /// The two stores say different things. Neither was changed.
    Conflict,
}

/// What is done first with a record: most are missing there, or most are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyMode {
    /// Write it.
    Copying,
    /// Look whether it is there.
    Comparing,
}

/// Copies `record`, as it was found, to the store `to`. `clocks` is one moment on both stores' clocks: the one it
/// comes from, and `to`'s.
///
/// # Errors
/// Where `to` doesn't answer. The same call may be made again.
pub async fn copy_record(
    to: &dyn StoreAdmin,
    pass: CopyMode,
    identity: &Identity,
    record: &Record,
    clocks: (Timestamp, Timestamp),
) -> StoreResult<CopyOutcome> {
    let (here, there) = clocks;
    let moved = Record {
        created_at: shifted(record.created_at, here, there),
        written_at: shifted(record.written_at, here, there),
        ..record.clone()
    };
    // A record that was brought over is written again without a change: that would look like a new one here.
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

/// The other store has a record too.
async fn reconcile(
    to: &dyn StoreAdmin,
    identity: &Identity,
    moved: &Record,
    found: &Record,
    there: Timestamp,
) -> StoreResult<CopyOutcome> {
    // Our record expired after it was listed, and the key has been used again in the target: keep the target's.
    if found.created_at >= moved.expires_at() {
        return Ok(CopyOutcome::There);
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
                CopyOutcome::There
            } else {
                CopyOutcome::Conflict
            })
        }
        // Its owner has told this store, and died before it told the other.
        (true, false) if same_run => mend(to, identity, moved, found).await,
        // Somebody asks there, or has: who uses both stores learns of the answer from this one, or from its settlement.
        (true, false) if !idle => Ok(CopyOutcome::Running),
        // The other has what was here before: an earlier run's record that was brought too late, or an owner that
        // died after it had claimed both. Who ran it since did so here.
        (true, false) if is_free || found.written_at <= moved.written_at => {
            replace(to, identity, moved, found).await
        }
        (true, false) => Ok(CopyOutcome::Conflict),
        // The other knows as much, or more. Or fewer attempts of the same run: to write these there would take the lease
        // from an owner that may be about to renew it.
        (false, _) => Ok(CopyOutcome::There),
    }
}

/// The owner's lease there, in its name.
fn lease_of(identity: &Identity, found: &Record) -> Grant {
    Grant {
        identity: *identity,
        fence: found.fence,
        token: found.token,
        attempt: found.attempt,
        checkpoint: Bytes::new(),
        lease: found.lease,
        crash: found.crash,
        memo: Bytes::new(),
    }
}

async fn mend(
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
    let lease = lease_of(identity, found);
    Ok(match to.settle(&lease, &settlement).await? {
        Settled::Done => CopyOutcome::Mended,
        // Somebody has it now: the next run sees what became of it.
        Settled::Lost => CopyOutcome::Running,
    })
}

/// Puts the record in the place of one that nobody runs. Nodes that use both stores ask this one's too, so whoever
/// wins the key between the two calls learns of the record from here.
async fn replace(
    to: &dyn StoreAdmin,
    identity: &Identity,
    moved: &Record,
    found: &Record,
) -> StoreResult<CopyOutcome> {
    let lease = lease_of(identity, found);
    let free = to.settle(&lease, &Settlement::Release).await? == Settled::Done;
    let written = free && to.restore(identity, moved).await? == Restored::Written;
    Ok(if written {
        CopyOutcome::Mended
    } else {
        CopyOutcome::Running
    })
}

/// `at` on the clock that says `there` when the other says `here`.
fn shifted(at: Timestamp, here: Timestamp, there: Timestamp) -> Timestamp {
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
        assert_eq!(shifted(at, early, late).as_micros(), 1_700);
        assert_eq!(shifted(at, late, early).as_micros(), 300);
        assert_eq!(shifted(at, early, early), at);
    }
}
