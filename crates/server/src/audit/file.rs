//! [`FileSink`]: the audit trail as JSON lines in a file.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::{BoxFuture, Clock};
use tokio::sync::Notify;

use super::entry::{ERASED, Entry};
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
}

impl FileConfig {
    /// The usual settings for a file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_bytes: 64 * 1024 * 1024,
            retention: Duration::from_secs(90 * 24 * 60 * 60),
            sync: Sync::default(),
        }
    }
}

/// How many bytes a search for one key's history reads at most.
const SEARCH_AT_MOST: u64 = 256 * 1024 * 1024;

/// The audit trail as JSON lines. One process per file.
#[derive(Clone)]
pub struct FileSink {
    files: Arc<Mutex<Files>>,
    written: Arc<Notify>,
}

struct Files {
    config: FileConfig,
    clock: Arc<dyn Clock>,
    file: File,
    bytes: u64,
    rotations: u64,
}

impl FileSink {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// Where it can't be written to.
    pub fn open(config: FileConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (file, bytes) = open(&config.path)?;
        let files = Files {
            config,
            clock,
            file,
            bytes,
            rotations: 0,
        };
        Ok(Self {
            files: Arc::new(Mutex::new(files)),
            written: Arc::default(),
        })
    }

    /// The file that is written to.
    pub(super) fn path(&self) -> PathBuf {
        self.files.lock().config.path.clone()
    }

    /// What comes after `position`.
    pub(super) fn read_on(
        &self,
        position: Option<Position>,
        most: usize,
    ) -> BoxFuture<'static, io::Result<Lot>> {
        self.blocking(move |files| spool::read_on(&files.config.path, position, most))
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
        let mut lines = Vec::with_capacity(lot.len() * 256);
        for entry in lot {
            if let Err(error) = serde_json::to_writer(&mut lines, entry) {
                return Box::pin(std::future::ready(Err(error.into())));
            }
            lines.push(b'\n');
        }
        let written = self.blocking(move |files| files.append(&lines));
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
        let files = self.files.lock();
        let path = files.config.path.clone();
        drop(files);
        // Without the lock: writing goes on meanwhile, and only ever adds lines.
        let work = tokio::task::spawn_blocking(move || search(&path, &id, most));
        Box::pin(async move { work.await.map_err(io::Error::other)? })
    }
}

/// Opens for appending. A line that a crash cut short is closed, so that the next one stands alone.
fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .open(path)?;
    let mut bytes = file.seek(SeekFrom::End(0))?;
    if bytes > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok((file, bytes))
}

impl Files {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + lines.len() as u64 > self.config.max_bytes {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // Part of a line may be there: the next lot begins on a new one.
            (self.file, self.bytes) = open(&self.config.path)?;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        match self.config.sync {
            Sync::EveryLot => self.file.sync_data(),
            Sync::Never => Ok(()),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let now = self.clock.wall();
        self.rotations += 1;
        // Names in the order of time; the number tells two of the same moment apart.
        let stamp = format!("{:016}-{:06}", now.as_micros(), self.rotations);
        let mut full = self.config.path.clone().into_os_string();
        full.push(format!(".{stamp}"));
        match fs::rename(&self.config.path, PathBuf::from(full)) {
            // An earlier rotation came as far as this and could open no new file, or somebody moved it away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        (self.file, self.bytes) = open(&self.config.path)?;
        self.prune()
    }

    /// Removes full files past their retention.
    fn prune(&self) -> io::Result<()> {
        let now = self.clock.wall().as_micros();
        let most = u64::try_from(self.config.retention.as_micros()).unwrap_or(u64::MAX);
        for path in full_files(&self.config.path)? {
            let closed = stamp_of(&path).unwrap_or(now);
            if now.saturating_sub(closed) > most {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn erase(&mut self, actor: &str) -> io::Result<u64> {
        let mut changed = 0;
        let mut all = full_files(&self.config.path)?;
        all.push(self.config.path.clone());
        for path in all {
            changed += rewrite(&path, actor)?;
        }
        // The file that was open may have been replaced.
        (self.file, self.bytes) = open(&self.config.path)?;
        Ok(changed)
    }
}

/// When a full file was closed, from its name.
fn stamp_of(path: &Path) -> Option<u64> {
    let stamp = path.extension()?.to_str()?;
    stamp.split('-').next()?.parse().ok()
}

/// The full files of the trail at `path`, oldest first.
pub(super) fn full_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
        + ".";
    let mut found = Vec::new();
    for file in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let file = file?.path();
        let starts = file
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with(&name));
        if starts && stamp_of(&file).is_some() {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

/// Replaces the actor's name in one file, all of it or nothing.
fn rewrite(path: &Path, actor: &str) -> io::Result<u64> {
    let mut changed = 0;
    let mut lines = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let line = line?;
        match serde_json::from_slice::<Entry>(&line) {
            Ok(mut entry) if entry.actor.as_deref() == Some(actor) => {
                entry.actor = Some(ERASED.to_owned());
                serde_json::to_writer(&mut lines, &entry)?;
                changed += 1;
            }
            _ => lines.extend_from_slice(&line),
        }
        lines.push(b'\n');
    }
    if changed > 0 {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".erasing");
        let mut file = File::create(&beside)?;
        file.write_all(&lines)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
    }
    Ok(changed)
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
