//! The files of an outbox: one for each call, complete or absent.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Outbox, OutboxError};
use crate::middleware::IdempotencyKey;

pub(super) const VERSION: u32 = 1;
const BESIDE: &str = ".new-";
/// The prefix of a call that is being forgotten. The same in every language, so that each can
/// restore what a crashed process left.
const ASIDE: &str = ".old-";
const STALE: Duration = Duration::from_secs(3600);

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) version: u32,
    pub(super) name: String,
    pub(super) key: String,
    pub(super) created: f64,
    pub(super) request: Option<StoredRequest>,
}

/// A stored request, without credentials: those are never on disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredRequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) content_type: Option<String>,
    pub(super) body_base64: String,
}

impl Entry {
    /// Whether it is the same call in the same state.
    fn is_same_as(&self, other: &Self) -> bool {
        self.key == other.key && self.request.is_some() == other.request.is_some()
    }
}

impl Outbox {
    pub(super) fn link(&self, fresh: &Entry) -> Result<Entry, OutboxError> {
        loop {
            let made = match self.place(fresh)? {
                true => Some(fresh.clone()),
                // `None` if another process has forgotten it between the two steps: begin again.
                false => self.read(&self.path(&fresh.name))?,
            };
            if let Some(made) = made {
                self.sync()?;
                return Ok(made);
            }
        }
    }

    /// Stores the request of a call. Returns whether it may have been sent before.
    ///
    /// Reads the file first, because another process may have continued the call since the caller's
    /// entry was read.
    pub(super) fn attach(&self, entry: &Entry) -> Result<bool, OutboxError> {
        let path = self.path(&entry.name);
        loop {
            match self.read(&path)? {
                Some(there) if there.key != entry.key => return Err(OutboxError::Changed),
                Some(there) if there.request.is_none() => {
                    std::fs::rename(self.write(entry)?, &path)?;
                    return Ok(false);
                }
                Some(there) if there.request != entry.request => return Err(OutboxError::Changed),
                Some(_) => return Ok(true),
                // The process that forgot it may have sent it. Never replaces a call that was begun
                // since.
                None if self.place(entry)? => return Ok(true),
                None => {}
            }
        }
    }

    /// Forgets the call in this state. If it is another call by now, or has a request since, it
    /// stays, because another process works on it.
    pub(super) fn remove(&self, entry: &Entry) -> Result<(), OutboxError> {
        let path = self.path(&entry.name);
        if !self
            .read(&path)?
            .is_some_and(|there| there.is_same_as(entry))
        {
            return Ok(());
        }
        // Under its own name the file could change between the read and the removal; set aside, it
        // can't.
        let aside = self.unused(ASIDE);
        match std::fs::rename(&path, &aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        let taken = entry_of(&aside);
        if matches!(&taken, Ok(Some(there)) if there.is_same_as(entry)) {
            if_there(std::fs::remove_file(&aside))?;
        } else {
            put_back(&aside, &path)?;
        }
        self.sync()?;
        taken.map(drop)
    }

    /// Restores a call that a process set aside before it crashed. It is unknown whether the call
    /// was to be forgotten, and sending it again is safe with its key.
    pub(super) fn recall(&self, aside: &Path) -> Result<(), OutboxError> {
        if let Some(entry) = entry_of(aside)? {
            put_back(aside, &self.path(&entry.name))?;
        }
        Ok(())
    }

    pub(super) fn all(&self) -> Result<Vec<Entry>, OutboxError> {
        let mut entries = Vec::new();
        for file in std::fs::read_dir(&self.folder)? {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == "call") {
                entries.extend(self.read(&path)?);
            }
        }
        Ok(entries)
    }

    fn read(&self, path: &Path) -> Result<Option<Entry>, OutboxError> {
        let entry = entry_of(path)?;
        // A file under another call's name would be sent as that call, and never be forgotten.
        let is_here = |entry: &Entry| self.path(&entry.name).file_name() == path.file_name();
        if entry.as_ref().is_some_and(|entry| !is_here(entry)) {
            return Err(damaged(path));
        }
        Ok(entry)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        let digest = Sha256::digest(name.as_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name + ".call")
    }

    fn unused(&self, beginning: &str) -> PathBuf {
        let name = format!("{beginning}{:016x}", rand::random::<u64>());
        self.folder.join(name)
    }

    /// Writes the call, unless there is one of its name. Returns whether it did.
    fn place(&self, entry: &Entry) -> Result<bool, OutboxError> {
        let beside = self.write(entry)?;
        let linked = std::fs::hard_link(&beside, self.path(&entry.name));
        std::fs::remove_file(&beside)?;
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            linked => Ok(linked.map(|()| true)?),
        }
    }

    /// Writes a file under a temporary name, and syncs it.
    fn write(&self, entry: &Entry) -> Result<PathBuf, OutboxError> {
        let beside = self.unused(BESIDE);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside)?;
        file.write_all(&serde_json::to_vec(entry).map_err(std::io::Error::from)?)?;
        file.sync_all()?;
        Ok(beside)
    }

    /// Syncs the folder: otherwise a name could be lost although its file is safe.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        if cfg!(unix) {
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Cleans up after crashed processes: removes temporary files, and restores calls that were set
    /// aside.
    pub(super) fn sweep(&self) -> Result<(), OutboxError> {
        let is_stale = |since: Option<SystemTime>| {
            let age = since.and_then(|since| since.elapsed().ok());
            age.is_some_and(|age| age > STALE)
        };
        for file in std::fs::read_dir(&self.folder)? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            // Another process has cleaned up a file that is gone meanwhile.
            let Ok(about) = file.metadata() else { continue };
            if name.starts_with(BESIDE) && is_stale(about.modified().ok()) {
                if_there(std::fs::remove_file(file.path()))?;
            } else if name.starts_with(ASIDE) && is_stale(renamed_at(&about)) {
                self.recall(&file.path())?;
            }
        }
        Ok(())
    }
}

/// Reads a file without checking its name.
fn entry_of(path: &Path) -> Result<Option<Entry>, OutboxError> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    // As text first, so that the parts that serde skips have to be valid too.
    let text = std::str::from_utf8(&bytes).ok();
    let entry = text.and_then(|text| serde_json::from_str::<Entry>(text).ok());
    let is_sound =
        |entry: &Entry| entry.version == VERSION && IdempotencyKey::new(&entry.key).is_ok();
    let entry = entry.filter(is_sound);
    entry.map(Some).ok_or_else(|| damaged(path))
}

/// Restores a file to its name. If the name is taken, the call was begun again meanwhile, and that
/// one stays.
fn put_back(aside: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(aside, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => if_there(Err(error)),
        _ => if_there(std::fs::remove_file(aside)),
    }
}

/// Treats a missing file as success: another process has done the step already.
fn if_there(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// When a file got its name. The modification time of a renamed file is that of its call.
#[cfg(unix)]
fn renamed_at(about: &Metadata) -> Option<SystemTime> {
    let seconds = u64::try_from(std::os::unix::fs::MetadataExt::ctime(about)).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(not(unix))]
fn renamed_at(about: &Metadata) -> Option<SystemTime> {
    about.modified().ok()
}

pub(super) fn damaged(path: &Path) -> OutboxError {
    let name = path.file_name().unwrap_or_default();
    OutboxError::Damaged {
        file: name.to_string_lossy().into_owned(),
    }
}

pub(super) fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
