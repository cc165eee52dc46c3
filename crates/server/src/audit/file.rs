//! [`FileSink`]: the audit trail as JSON lines in a file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::{BoxFuture, Clock};
use tokio::sync::Notify;

use super::entry::Entry;
use super::files::{Files, full_files};
use super::sink::{History, Sink};
use super::spool::{self, Lot, Position};

/// When a file's contents are forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// After every lot, before it counts as written. What an admin change waits for.
    #[default]
    EveryLot,
    /// When the operating system likes: a crash of the machine may lose the last seconds, one of the process nothing.
    Never,
}

/// How a [`FileSink`] keeps its files.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The file that is written to. Full ones get a time behind their name.
    pub path: PathBuf,
    /// When a file is full. 64 MiB.
    pub max_bytes: u64,
    /// How long full files are kept. 90 days.
    pub retention: Duration,
    /// When to force them to the disk.
    pub sync: Sync,
    /// The key that signs the trail; made where it isn't there. `path` with `.key` behind it.
    pub key_file: PathBuf,
}

impl FileConfig {
    /// The usual settings for a file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let mut key_file = path.clone().into_os_string();
        key_file.push(".key");
        Self {
            path,
            key_file: key_file.into(),
            max_bytes: 64 * 1024 * 1024,
            retention: Duration::from_secs(90 * 24 * 60 * 60),
            sync: Sync::default(),
        }
    }
}

/// How many bytes a search for one key's history reads at most.
const SEARCH_AT_MOST: u64 = 256 * 1024 * 1024;

/// The audit trail as JSON lines. Processes that write to one file take turns.
#[derive(Clone)]
pub struct FileSink {
    files: Arc<Mutex<Files>>,
    written: Arc<Notify>,
}

impl FileSink {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// Where it can't be written to.
    pub fn open(config: FileConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let files = Files::open(config, clock)?;
        Ok(Self {
            files: Arc::new(Mutex::new(files)),
            written: Arc::default(),
        })
    }

    /// The file that is written to.
    pub(super) fn path(&self) -> PathBuf {
        self.files.lock().path().to_owned()
    }

    /// What comes after `position`.
    pub(super) fn read_on(
        &self,
        position: Option<Position>,
        most: usize,
    ) -> BoxFuture<'static, io::Result<Lot>> {
        self.blocking(move |files| spool::read_on(files.path(), position, most))
    }

    /// Completes when something was written after this was called.
    pub(super) fn written(&self) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&self.written).notified_owned()
    }

    /// Tells whoever follows to look.
    pub(super) fn nudge(&self) {
        self.written.notify_waiters();
    }

    /// Does file work on a thread that may block.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Files) -> io::Result<T> + Send + 'static,
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

    fn write<'a>(&'a self, lot: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        let lot = lot.to_vec();
        let written = self.blocking(move |files| files.append(&lot));
        Box::pin(async move {
            let written = written.await;
            self.nudge();
            written
        })
    }

    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        let actor = actor.to_owned();
        self.blocking(move |files| files.erase(&actor))
    }

    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<History>> {
        let id = id.to_owned();
        let path = self.path();
        // Without the lock: writing goes on meanwhile, and only ever adds lines.
        let work = tokio::task::spawn_blocking(move || search(&path, &id, most));
        Box::pin(async move { work.await.map_err(io::Error::other)? })
    }
}

/// Newest file first, within a bound on what is read.
fn search(path: &Path, id: &str, most: usize) -> io::Result<History> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    let mut history = History {
        entries: Vec::new(),
        complete: true,
    };
    let mut read = 0;
    for file in files.iter().rev() {
        // Rotated or pruned meanwhile: what is in it is elsewhere, or gone.
        let Ok(file) = File::open(file) else { continue };
        read += file.metadata()?.len();
        let left = most.saturating_sub(history.entries.len());
        if read > SEARCH_AT_MOST || left == 0 {
            history.complete = false;
            break;
        }
        let mut found = VecDeque::new();
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            // A line that a crash cut short is no entry.
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
