//! [`TrailFiles`]: the current file of the trail, and the full ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::Clock;

use super::chain::{self, CHECKPOINT, ChainHead};
use super::entry::Entry;
use super::file_config::{FileConfig, SyncMode};
use super::signing_key::{SigningKey, owner_only};
use crate::web::format_time;

/// The number of links between two checkpoints.
const CHECKPOINT_EVERY: u64 = 1_000;

/// The number of bytes at the end of a file that contain the last link.
const TAIL_BYTES: u64 = 1024 * 1024;

/// The files of the trail.
pub(super) struct TrailFiles {
    config: FileConfig,
    clock: Arc<dyn Clock>,
    key: SigningKey,
    // The key file, which is locked while this process writes, because another one may write too.
    lock: File,
    file: File,
    bytes: u64,
    rotations: u64,
    head: ChainHead,
    signed: u64,
}

/// Opens a file for appending. If a crash has truncated the last line, it gets a line end.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true);
    let mut file = owner_only(&mut options).open(path)?;
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

impl TrailFiles {
    /// Opens or creates the file, and signs the chain so far.
    pub(super) fn open(config: FileConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (file, bytes) = open_file(&config.path)?;
        let key = SigningKey::open(&config.key_file)?;
        let mut files = Self {
            key,
            lock: File::open(&config.key_file)?,
            config,
            clock,
            file,
            bytes,
            rotations: 0,
            head: ChainHead::empty(),
            signed: 0,
        };
        files.with_lock(|files| {
            files.reopen()?;
            files.write_checkpoint()
        })?;
        Ok(files)
    }

    /// Runs a change while no other process writes to the trail.
    fn with_lock<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        self.lock.lock()?;
        let done = self.catch_up().and_then(|()| work(self));
        self.lock.unlock()?;
        done
    }

    /// Reopens the file if another process has written to it or replaced it.
    fn catch_up(&mut self) -> io::Result<()> {
        let (ours, current) = (self.file.metadata()?, fs::metadata(&self.config.path).ok());
        let is_unchanged =
            current.is_some_and(|current| current.len() == self.bytes && is_same(&ours, &current));
        if is_unchanged { Ok(()) } else { self.reopen() }
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.bytes) = open_file(&self.config.path)?;
        self.head = last_head(&self.config.path)?;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.config.path
    }

    pub(super) fn append(&mut self, batch: &[Entry]) -> io::Result<()> {
        self.with_lock(|files| files.append_locked(batch))
    }

    fn append_locked(&mut self, batch: &[Entry]) -> io::Result<()> {
        let (mut lines, mut head) = self.build_lines(batch)?;
        if self.bytes > 0 && self.bytes + lines.len() as u64 > self.config.max_bytes {
            self.rotate()?;
            (lines, head) = self.build_lines(batch)?;
        }
        self.write(&lines, head)?;
        if self.head.number.saturating_sub(self.signed) >= CHECKPOINT_EVERY {
            self.write_checkpoint()?;
        }
        match self.config.sync {
            SyncMode::EveryBatch => self.file.sync_data(),
            SyncMode::Never => Ok(()),
        }
    }

    /// The lines of a batch, and the head of the chain after them.
    fn build_lines(&self, batch: &[Entry]) -> io::Result<(Vec<u8>, ChainHead)> {
        let mut head = self.head.clone();
        let mut lines = Vec::with_capacity(batch.len() * 400);
        for entry in batch {
            let mut entry = entry.clone();
            head.append(&mut entry, self.key.random()?);
            serde_json::to_writer(&mut lines, &entry)?;
            lines.push(b'\n');
        }
        Ok((lines, head))
    }

    fn write(&mut self, lines: &[u8], head: ChainHead) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // A part may be written. The next batch starts on a new line after the last complete
            // one.
            self.reopen()?;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        self.head = head;
        Ok(())
    }

    /// Writes a checkpoint.
    fn write_checkpoint(&mut self) -> io::Result<()> {
        let checkpoint = Entry {
            event_id: format!("{:032x}-{}", self.key.random()?, self.head.number),
            time: format_time(self.clock.wall()),
            kind: CHECKPOINT.to_owned(),
            code: None,
            environment: String::new(),
            tenant: String::new(),
            scope: String::new(),
            operation: None,
            key_prefix: None,
            id: None,
            actor: None,
            detail: self.head.checkpoint_detail(&self.key),
            chain: None,
        };
        let (line, head) = self.build_lines(&[checkpoint])?;
        self.write(&line, head)?;
        self.signed = self.head.number;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let now = self.clock.wall();
        self.rotations += 1;
        // Names sort by time. The number distinguishes rotations of the same microsecond.
        let stamp = format!("{:016}-{:06}", now.as_micros(), self.rotations);
        let mut full = self.config.path.clone().into_os_string();
        full.push(format!(".{stamp}"));
        match fs::rename(&self.config.path, PathBuf::from(full)) {
            // An earlier rotation failed after the rename, or somebody moved the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        (self.file, self.bytes) = open_file(&self.config.path)?;
        // Each file begins with a checkpoint, because older files are removed at some time.
        self.write_checkpoint()?;
        self.prune()
    }

    /// Removes full files after their retention.
    fn prune(&self) -> io::Result<()> {
        let now = self.clock.wall().as_micros();
        let most = u64::try_from(self.config.retention.as_micros()).unwrap_or(u64::MAX);
        for path in full_files(&self.config.path)? {
            let closed = rotation_time(&path).unwrap_or(now);
            if now.saturating_sub(closed) > most {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    pub(super) fn erase(&mut self, actor: &str) -> io::Result<u64> {
        self.with_lock(|files| files.erase_locked(actor))
    }

    fn erase_locked(&mut self, actor: &str) -> io::Result<u64> {
        let mut changed = 0;
        let mut all = full_files(&self.config.path)?;
        all.push(self.config.path.clone());
        for path in all {
            changed += erase_in_file(&path, actor)?;
        }
        // The open file may have been replaced.
        (self.file, self.bytes) = open_file(&self.config.path)?;
        Ok(changed)
    }
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// The time at which a full file was closed, from its name.
fn rotation_time(path: &Path) -> Option<u64> {
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
        if starts && rotation_time(&file).is_some() {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

/// Replaces the actor's name in one file, atomically.
fn erase_in_file(path: &Path, actor: &str) -> io::Result<u64> {
    let mut changed = 0;
    let mut lines = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let line = line?;
        match serde_json::from_slice::<Entry>(&line) {
            Ok(mut entry) if entry.is_erased_with(actor) => {
                chain::erase_actor(&mut entry);
                serde_json::to_writer(&mut lines, &entry)?;
                changed += 1;
            }
            _ => lines.extend_from_slice(&line),
        }
        lines.push(b'\n');
    }
    if changed > 0 {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".erasing");
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        let mut file = owner_only(&mut options).open(&temporary)?;
        file.write_all(&lines)?;
        file.sync_all()?;
        fs::rename(temporary, path)?;
    }
    Ok(changed)
}

/// The last link of the trail at `path`.
fn last_head(path: &Path) -> io::Result<ChainHead> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    for file in files.iter().rev() {
        if let Some(head) = last_head_in_file(file)? {
            return Ok(head);
        }
    }
    Ok(ChainHead::empty())
}

fn last_head_in_file(path: &Path) -> io::Result<Option<ChainHead>> {
    let mut file = File::open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    let link = lines.find_map(|line| serde_json::from_slice::<Entry>(line).ok()?.chain);
    Ok(link.map(|link| ChainHead::from_link(&link)))
}
