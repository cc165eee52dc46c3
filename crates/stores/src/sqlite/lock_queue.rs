//! Fairness for the write lock among the processes that have the file open.
//!
//! SQLite gives its write lock to the first process that asks when it is free. A process that
//! writes all the time asks again at once, and others would wait for seconds. So a process takes
//! its turn before it asks for the write lock, and gives the turn up once it has the lock. A
//! process that waits meanwhile is next.
//!
//! The turn is a lock on a file beside the database, which the kernel releases when a process dies.
//! It is optional: without it, a process asks for the write lock directly.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use semel_core::{Clock, Tick};
use sqlx::Error;

use super::error::is_busy;

/// The pause between two attempts at a lock that another process has.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for a turn. A stopped process (`SIGSTOP`) keeps its turn, and delays others by
/// this much at most.
const LONGEST: Duration = Duration::from_millis(250);
/// How long a turn lasts. Handing the lock over costs a pause on both sides, so a turn covers
/// several writes.
const LASTS: Duration = Duration::from_millis(10);

/// The queue for the write lock: its file, and the last turn of this process.
pub(super) struct LockQueue {
    /// None if it can't be opened.
    file: Option<File>,
    /// When this process had it last, or had waited long enough for it.
    had: Option<Tick>,
}

impl LockQueue {
    /// Opens the file beside the database's, with the same permissions.
    pub(super) fn open(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push("-turn");
        let mode = path.metadata().map_or(0o600, |found| found.mode() & 0o666);
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false).mode(mode);
        Self {
            file: open.open(name).ok(),
            had: None,
        }
    }

    /// Waits for this process's turn to ask for the write lock. No other process asks until the
    /// turn is dropped, except one whose last turn isn't over yet.
    pub(super) async fn take(&mut self, clock: &dyn Clock) -> LockTurn<'_> {
        let began = clock.now();
        if self.had.is_some_and(|had| began.since(had) < LASTS) {
            return LockTurn(None);
        }
        let mut taken = None;
        while let Some(file) = &self.file {
            taken = file.try_lock().is_ok().then_some(file);
            if taken.is_some() || clock.now().since(began) >= LONGEST {
                break;
            }
            clock.sleep(PAUSE).await;
        }
        self.had = Some(clock.now());
        LockTurn(taken)
    }
}

/// A turn, or the permission to go on without one.
pub(super) struct LockTurn<'a>(Option<&'a File>);

impl Drop for LockTurn<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            // If that fails, others go on without a turn.
            let _ = file.unlock();
        }
    }
}

/// The time limit for waiting on a lock of another process.
pub(super) struct BusyTimeout<'a> {
    clock: &'a dyn Clock,
    began: Tick,
    limit: Duration,
}

impl<'a> BusyTimeout<'a> {
    pub(super) fn new(clock: &'a dyn Clock, limit: Duration) -> Self {
        let began = clock.now();
        Self {
            clock,
            began,
            limit,
        }
    }

    /// Whether to give up: `error` isn't about a lock, or the time limit has passed.
    pub(super) fn is_over(&self, error: &Error) -> bool {
        !is_busy(error) || self.clock.now().since(self.began) >= self.limit
    }

    /// Pauses before the next attempt.
    pub(super) async fn pause(&self) {
        self.clock.sleep(PAUSE).await;
    }
}
