//! [`Files`]: the file that is written to, and the full ones beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::Clock;

use super::chain::{self, CHECKPOINT, Head};
use super::entry::Entry;
use super::file::{FileConfig, Sync};
use super::seal::{Seal, for_the_owner};
use crate::api::time;

/// After how many links the chain is signed again.
const CHECKPOINT_EVERY: u64 = 1_000;

/// Longer than a lot of entries: the last link is found in the file's last bytes.
const TAIL: u64 = 1024 * 1024;

pub(super) struct Files {
    config: FileConfig,
    clock: Arc<dyn Clock>,
    seal: Seal,
    // The key file, locked while this process writes: `semel keys --audit` may write to the same trail.
    lock: File,
    file: File,
    bytes: u64,
    rotations: u64,
    head: Head,
    signed: u64,
}

/// Opens for appending. A line that a crash cut short is closed, so that the next one stands alone.
fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true);
    let mut file = for_the_owner(&mut options).open(path)?;
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
    /// Opens the file, or makes it, and signs the chain so far.
    pub(super) fn open(config: FileConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (file, bytes) = open(&config.path)?;
        let seal = Seal::open(&config.key_file)?;
        let mut files = Self {
            seal,
            lock: File::open(&config.key_file)?,
            config,
            clock,
            file,
            bytes,
            rotations: 0,
            head: Head::none(),
            signed: 0,
        };
        files.alone(|files| {
            files.reopen()?;
            files.sign()
        })?;
        Ok(files)
    }

    /// Works while no other process writes to the trail, behind what others wrote.
    fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        self.lock.lock()?;
        let done = self.catch_up().and_then(|()| work(self));
        self.lock.unlock()?;
        done
    }

    /// Looks anew where another process wrote to the file, or put another in its place.
    fn catch_up(&mut self) -> io::Result<()> {
        let (ours, there) = (self.file.metadata()?, fs::metadata(&self.config.path).ok());
        let is_as_left =
            there.is_some_and(|there| there.len() == self.bytes && is_same(&ours, &there));
        if is_as_left { Ok(()) } else { self.reopen() }
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.bytes) = open(&self.config.path)?;
        self.head = last_head(&self.config.path)?;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.config.path
    }

    pub(super) fn append(&mut self, lot: &[Entry]) -> io::Result<()> {
        self.alone(|files| files.append_alone(lot))
    }

    fn append_alone(&mut self, lot: &[Entry]) -> io::Result<()> {
        let (mut lines, mut head) = self.chained(lot)?;
        if self.bytes > 0 && self.bytes + lines.len() as u64 > self.config.max_bytes {
            self.rotate()?;
            (lines, head) = self.chained(lot)?;
        }
        self.write(&lines, head)?;
        if self.head.number.saturating_sub(self.signed) >= CHECKPOINT_EVERY {
            self.sign()?;
        }
        match self.config.sync {
            Sync::EveryLot => self.file.sync_data(),
            Sync::Never => Ok(()),
        }
    }

    /// The lines of a lot, and the chain's head behind them.
    fn chained(&self, lot: &[Entry]) -> io::Result<(Vec<u8>, Head)> {
        let mut head = self.head.clone();
        let mut lines = Vec::with_capacity(lot.len() * 400);
        for entry in lot {
            let mut entry = entry.clone();
            head.add(&mut entry, self.seal.random()?);
            serde_json::to_writer(&mut lines, &entry)?;
            lines.push(b'\n');
        }
        Ok((lines, head))
    }

    fn write(&mut self, lines: &[u8], head: Head) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // Part of the lot may be there: the next begins on a new line, behind the last whole one.
            self.reopen()?;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        self.head = head;
        Ok(())
    }

    /// Writes a checkpoint.
    fn sign(&mut self) -> io::Result<()> {
        let checkpoint = Entry {
            event_id: format!("{:032x}-{}", self.seal.random()?, self.head.number),
            time: time(self.clock.wall()),
            kind: CHECKPOINT.to_owned(),
            code: None,
            environment: String::new(),
            tenant: String::new(),
            scope: String::new(),
            id: None,
            actor: None,
            detail: self.head.signed(&self.seal),
            chain: None,
        };
        let (line, head) = self.chained(&[checkpoint])?;
        self.write(&line, head)?;
        self.signed = self.head.number;
        Ok(())
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
        // Each file begins with a checkpoint: the older ones may be gone one day.
        self.sign()?;
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

    pub(super) fn erase(&mut self, actor: &str) -> io::Result<u64> {
        self.alone(|files| files.erase_alone(actor))
    }

    fn erase_alone(&mut self, actor: &str) -> io::Result<u64> {
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

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
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
            Ok(mut entry) if entry.is_erased_with(actor) => {
                chain::erase(&mut entry);
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
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        let mut file = for_the_owner(&mut options).open(&beside)?;
        file.write_all(&lines)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
    }
    Ok(changed)
}

/// The last link that the trail at `path` has.
fn last_head(path: &Path) -> io::Result<Head> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    for file in files.iter().rev() {
        if let Some(head) = last_head_of(file)? {
            return Ok(head);
        }
    }
    Ok(Head::none())
}

fn last_head_of(path: &Path) -> io::Result<Option<Head>> {
    let mut file = File::open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    let link = lines.find_map(|line| serde_json::from_slice::<Entry>(line).ok()?.chain);
    Ok(link.map(|link| Head::of(&link)))
}
