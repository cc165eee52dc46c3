//! Whose turn it is to wait for the write lock, among the processes that have the file open.
//!
//! SQLite gives the lock to whoever asks for it when it is free, and a process that writes all the time asks again at
//! once: another one would wait for seconds. So the turn is taken before the lock is asked for, and given up when that
//! is had: whoever waited meanwhile is next, soon.
//!
//! It is a lock on a file beside the database, which the kernel takes from a process that dies. And it is a courtesy:
//! where it can't be had, the write lock is asked for without it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use semel_core::{Clock, Tick};
use sqlx::Error;

use super::error::is_busy;

/// Between two attempts at what another process has.
const PAUSE: Duration = Duration::from_millis(1);
/// A process that is stopped (`SIGSTOP`) keeps its turn: it delays a write of others by so much, and no more.
const LONGEST: Duration = Duration::from_millis(250);
/// A turn is for all that is written in this time: to hand the lock over costs a pause, on both sides.
const LASTS: Duration = Duration::from_millis(10);

/// The file, and when it was this process's turn.
pub(super) struct Turn {
    /// None where it can't be opened.
    file: Option<File>,
    /// When this process had it last, or had waited long enough for it.
    had: Option<Tick>,
}

impl Turn {
    /// Opens the file beside the database's, with the same permissions.
    pub(super) fn beside(path: &Path) -> Self {
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

    /// Waits until this process may ask for the lock. Until the answer is dropped nobody else does, but who had the turn
    /// a moment ago.
    pub(super) async fn take(&mut self, clock: &dyn Clock) -> Taken<'_> {
        let began = clock.now();
        if self.had.is_some_and(|had| began.since(had) < LASTS) {
            return Taken(None);
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
        Taken(taken)
    }
}

/// The turn, or the leave to go on without taking it.
pub(super) struct Taken<'a>(Option<&'a File>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            // Should that fail, others go on without their turn.
            let _ = file.unlock();
        }
    }
}

/// For how long to try what another process is in the way of.
pub(super) struct Patience<'a> {
    clock: &'a dyn Clock,
    began: Tick,
    limit: Duration,
}

impl<'a> Patience<'a> {
    pub(super) fn new(clock: &'a dyn Clock, limit: Duration) -> Self {
        let began = clock.now();
        Self {
            clock,
            began,
            limit,
        }
    }

    /// Whether `error` is not to be waited for, or not any longer.
    pub(super) fn is_over(&self, error: &Error) -> bool {
        !is_busy(error) || self.clock.now().since(self.began) >= self.limit
    }

    /// Before the next attempt.
    pub(super) async fn pause(&self) {
        self.clock.sleep(PAUSE).await;
    }
}
