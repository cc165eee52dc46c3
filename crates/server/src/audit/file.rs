//! [`FileSink`]: the audit trail as JSON lines in files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::{BoxFuture, Clock};
use tokio::sync::Notify;

use super::entry::Entry;
use super::file_config::FileConfig;
use super::files::{TrailFiles, full_files};
use super::sink::{AuditHistory, Sink};
use super::spool::{self, Batch, Position};

/// The maximum number of bytes that a search for a key's history reads.
const MAX_SEARCH_BYTES: u64 = 256 * 1024 * 1024;

/// The audit trail as JSON lines. Several processes can write to one file.
#[derive(Clone)]
pub struct FileSink {
    files: Arc<Mutex<TrailFiles>>,
    written: Arc<Notify>,
}

impl FileSink {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(config: FileConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let files = TrailFiles::open(config, clock)?;
        Ok(Self {
            files: Arc::new(Mutex::new(files)),
            written: Arc::default(),
        })
    }

    /// The path of the current file.
    pub(super) fn path(&self) -> PathBuf {
        self.files.lock().path().to_owned()
    }

    /// Reads the entries after `position`.
    pub(super) fn read_after(
        &self,
        position: Option<Position>,
        most: usize,
    ) -> BoxFuture<'static, io::Result<Batch>> {
        self.run_blocking(move |files| spool::read_after(files.path(), position, most))
    }

    /// Completes at the next write.
    pub(super) fn next_write(&self) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&self.written).notified_owned()
    }

    /// Wakes the tasks that wait for the next write.
    pub(super) fn wake_readers(&self) {
        self.written.notify_waiters();
    }

    /// Runs file operations on a blocking thread.
    fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut TrailFiles) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let files = Arc::clone(&self.files);
        let work = tokio::task::spawn_blocking(move || work(&mut files.lock()));
        Box::pin(async move { work.await.map_err(io::Error::other)? })
    }
}

impl Sink for FileSink {
    fn name(&self) -> &'static str {
        "file"
    }

    fn write<'a>(&'a self, batch: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        let batch = batch.to_vec();
        let written = self.run_blocking(move |files| files.append(&batch));
        Box::pin(async move {
            let written = written.await;
            self.wake_readers();
            written
        })
    }

    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        let actor = actor.to_owned();
        self.run_blocking(move |files| files.erase(&actor))
    }

    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<AuditHistory>> {
        let id = id.to_owned();
        let path = self.path();
        // Without the lock, because concurrent writes only append lines.
        let work = tokio::task::spawn_blocking(move || search(&path, &id, most));
        Box::pin(async move { work.await.map_err(io::Error::other)? })
    }
}

/// Searches the files for a key's entries, newest file first, up to a maximum number of bytes.
fn search(path: &Path, id: &str, most: usize) -> io::Result<AuditHistory> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    let mut history = AuditHistory {
        entries: Vec::new(),
        complete: true,
    };
    let mut read = 0;
    for file in files.iter().rev() {
        // The file was rotated or removed meanwhile.
        let Ok(file) = File::open(file) else { continue };
        read += file.metadata()?.len();
        let left = most.saturating_sub(history.entries.len());
        if read > MAX_SEARCH_BYTES || left == 0 {
            history.complete = false;
            break;
        }
        let mut found = VecDeque::new();
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            // A crash may have truncated a line.
            let Ok(entry) = serde_json::from_slice::<Entry>(&line) else {
                continue;
            };
            if entry.id.as_deref() != Some(id) {
                continue;
            }
            if found.len() == left {
                found.pop_front();
                history.complete = false;
            }
            found.push_back(entry);
        }
        history.entries.splice(0..0, found);
    }
    Ok(history)
}
