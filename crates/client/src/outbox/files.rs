//! The files: one for each call, whole or not there.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Outbox, OutboxError};
use crate::middleware::IdempotencyKey;

pub(super) const VERSION: u32 = 1;
const BESIDE: &str = ".new-";
const STALE: Duration = Duration::from_secs(3600);

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) version: u32,
    pub(super) name: String,
    pub(super) key: String,
    pub(super) created: f64,
    pub(super) request: Option<Kept>,
}

/// What is sent, without credentials: those are the sender's, and never on disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) content_type: Option<String>,
    pub(super) body_base64: String,
}

/// Without key and payload.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry(sent: {})", self.request.is_some())
    }
}

impl Outbox {
    pub(super) fn link(&self, fresh: &Entry) -> Result<Entry, OutboxError> {
        let path = self.path(&fresh.name);
        loop {
            let beside = self.write(fresh)?;
            let linked = std::fs::hard_link(&beside, &path);
            std::fs::remove_file(&beside)?;
            let made = match linked {
                Ok(()) => Some(fresh.clone()),
                // Where it is gone again, another process has forgotten it between the two steps: begin anew.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.read(&path)?,
                Err(error) => return Err(error.into()),
            };
            if let Some(made) = made {
                self.sync()?;
                return Ok(made);
            }
        }
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
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        // As text first: what isn't read of the file has to be JSON too.
        let text = std::str::from_utf8(&bytes).ok();
        let entry = text.and_then(|text| serde_json::from_str::<Entry>(text).ok());
        // One that lies under another's name would be sent as that one, and never be forgotten.
        let is_sound = |entry: &Entry| {
            let is_here = self.path(&entry.name).file_name() == path.file_name();
            entry.version == VERSION && is_here && IdempotencyKey::new(&entry.key).is_ok()
        };
        let damaged = || OutboxError::Damaged {
            file: file_name(path),
        };
        entry.filter(is_sound).map(Some).ok_or_else(damaged)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        let digest = Sha256::digest(name.as_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name + ".call")
    }

    /// Writes a file beside, and makes it durable.
    pub(super) fn write(&self, entry: &Entry) -> Result<PathBuf, OutboxError> {
        let name = format!("{BESIDE}{:016x}", rand::random::<u64>());
        let beside = self.folder.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside)?;
        file.write_all(&serde_json::to_vec(entry).map_err(std::io::Error::from)?)?;
        file.sync_all()?;
        Ok(beside)
    }

    /// Without this, a name could be lost although its file is safe.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        if cfg!(unix) {
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes what a process that died while writing left beside.
    pub(super) fn sweep(&self) -> Result<(), OutboxError> {
        for file in std::fs::read_dir(&self.folder)? {
            let file = file?;
            let is_beside = file.file_name().to_string_lossy().starts_with(BESIDE);
            let age = file.metadata().and_then(|about| about.modified());
            let age = age.ok().and_then(|at| at.elapsed().ok());
            if is_beside && age.is_some_and(|age| age > STALE) {
                std::fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }
}

pub(super) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(super) fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
