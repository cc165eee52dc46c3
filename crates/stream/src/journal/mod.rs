//! The journal (write-ahead log): what a gate has recorded, on disk.
//!
//! One file: a snapshot, then what was recorded since. When that is long, a new file with a new
//! snapshot replaces it: it is written under a temporary name, synced, and renamed. A reader takes
//! the newest.

mod frame;
mod read;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

pub(crate) use frame::Entry;
use frame::{FRAME, FramePosition, encode};

/// When the journal is synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fsync {
    /// Before a commit is done: it survives the loss of power. Commits of several threads share a
    /// call.
    #[default]
    Always,
    /// When the system likes: a commit survives the death of the process. After the loss of power,
    /// what was applied last may be applied again.
    Never,
}

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file system refused.
    #[error("cannot read or write the journal")]
    Io(#[from] io::Error),
    /// Another process, or another gate of this one, has it open.
    #[error("the journal is in use by another process")]
    InUse,
    /// A frame that was on disk is not what it was. Nothing was changed; restore the folder from a
    /// copy, or remove it and accept that old operations may be applied again.
    #[error("the journal is damaged at frame {frame}")]
    Damaged {
        /// Which, counted from 0; frames have 80 bytes.
        frame: u64,
    },
    /// An earlier write failed, so that it is unknown what is on disk. Open it again.
    #[error("an earlier write to the journal failed; open it again")]
    Poisoned,
}

/// A journal shorter than this is never rewritten.
const SHORT: u64 = 10_000;

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
    fsync: Fsync,
    /// Held for reading from the first write of a commit until memory knows of it: a snapshot sees
    /// all of it or none.
    commits: RwLock<()>,
    file: RwLock<Current>,
    /// A write failed, so that nobody knows what is on disk: nothing more is written.
    poisoned: AtomicBool,
    _lock: File,
}

#[derive(Debug)]
struct Current {
    file: File,
    generation: u64,
    /// How many frames the snapshot has, with the head.
    snapshot: u64,
    written: Mutex<WriteState>,
    synced: Mutex<u64>,
}

#[derive(Clone, Copy, Debug)]
struct WriteState {
    frames: u64,
    synced: u64,
}

impl Journal {
    /// Opens the journal in a folder, which is made if it isn't there. → it, and all that it says.
    pub(crate) fn open(folder: &Path, fsync: Fsync) -> Result<(Self, Vec<Entry>), JournalError> {
        std::fs::create_dir_all(folder)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(JournalError::InUse),
            Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        let (current, entries) = match read::newest(folder)? {
            None => (write_new(folder, 0, &[])?, Vec::new()),
            Some((generation, path)) => reopen(&path, generation)?,
        };
        remove_others(folder, current.generation)?;
        let journal = Self {
            folder: folder.to_owned(),
            fsync,
            commits: RwLock::new(()),
            file: RwLock::new(current),
            poisoned: AtomicBool::new(false),
            _lock: lock,
        };
        Ok((journal, entries))
    }

    /// To be held from before [`Self::append`] until memory knows.
    pub(crate) fn committing(&self) -> RwLockReadGuard<'_, ()> {
        self.commits.read()
    }

    /// Writes entries down, together.
    pub(crate) fn append(&self, entries: &[Entry]) -> Result<(), JournalError> {
        let current = self.file.read();
        let frames = current.append(entries, &self.poisoned)?;
        match self.fsync {
            Fsync::Always => current.sync(frames, &self.poisoned),
            Fsync::Never => Ok(()),
        }
    }

    /// Whether an earlier write failed, and nothing more is written.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Whether there is more since the snapshot than a new snapshot would take, twice over.
    pub(crate) fn is_long(&self, live: usize) -> bool {
        let current = self.file.read();
        let since = current.written.lock().frames - current.snapshot;
        since > SHORT.max(2 * live as u64)
    }

    /// Begins a new file with what `snapshot` gives, while nobody commits.
    pub(crate) fn compact(
        &self,
        snapshot: impl FnOnce() -> Vec<Entry>,
    ) -> Result<(), JournalError> {
        let _nobody = self.commits.write();
        let mut file = self.file.write();
        if self.is_poisoned() {
            return Err(JournalError::Poisoned);
        }
        match write_new(&self.folder, file.generation + 1, &snapshot()) {
            Ok(new) => *file = new,
            Err(error) => {
                // The new file may have its name, and be what is read next: nothing more may go
                // into the old one.
                self.poisoned.store(true, Ordering::Release);
                return Err(error);
            }
        }
        // What can't be removed is older, never read, and removed when the journal is opened next.
        let _ = remove_others(&self.folder, file.generation);
        Ok(())
    }
}

impl Current {
    /// → how many frames there are now.
    fn append(&self, entries: &[Entry], poisoned: &AtomicBool) -> Result<u64, JournalError> {
        let mut written = self.written.lock();
        if poisoned.load(Ordering::Acquire) {
            return Err(JournalError::Poisoned);
        }
        let mut bytes = Vec::with_capacity(entries.len() * FRAME);
        for (entry, index) in entries.iter().zip(written.frames..) {
            let place = FramePosition {
                generation: self.generation,
                index,
            };
            bytes.extend(encode(entry, place, written.synced));
        }
        if let Err(error) = (&self.file).write_all(&bytes) {
            poisoned.store(true, Ordering::Release);
            return Err(error.into());
        }
        written.frames += entries.len() as u64;
        Ok(written.frames)
    }

    /// Brings at least so many frames to disk. Who waited while another did it for both has nothing
    /// left to do.
    fn sync(&self, frames: u64, poisoned: &AtomicBool) -> Result<(), JournalError> {
        let mut synced = self.synced.lock();
        if *synced >= frames {
            return Ok(());
        }
        let now = self.written.lock().frames;
        if poisoned.load(Ordering::Acquire) {
            return Err(JournalError::Poisoned);
        }
        if let Err(error) = self.file.sync_data() {
            // The system may have dropped what it could not write, and say so only once.
            poisoned.store(true, Ordering::Release);
            return Err(error.into());
        }
        *synced = now;
        self.written.lock().synced = now;
        Ok(())
    }
}

fn reopen(path: &Path, generation: u64) -> Result<(Current, Vec<Entry>), JournalError> {
    let read::Contents {
        entries,
        frames,
        snapshot,
    } = read::read(path, generation)?;
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(frames * FRAME as u64)?;
    io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    file.sync_all()?;
    Ok((
        Current::new(file, generation, snapshot + 1, frames),
        entries,
    ))
}

/// Writes a new file beside the old, and gives it its name when all of it is on disk.
fn write_new(folder: &Path, generation: u64, snapshot: &[Entry]) -> Result<Current, JournalError> {
    let (beside, path) = (folder.join("new"), folder.join(read::name(generation)));
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&beside)?);
    let head = Entry::Head {
        snapshot: snapshot.len() as u64,
    };
    for (entry, index) in std::iter::once(&head).chain(snapshot).zip(0..) {
        file.write_all(&encode(entry, FramePosition { generation, index }, 0))?;
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    std::fs::rename(&beside, &path)?;
    // The name, too.
    File::open(folder)?.sync_all()?;
    let frames = snapshot.len() as u64 + 1;
    Ok(Current::new(file, generation, frames, frames))
}

impl Current {
    fn new(file: File, generation: u64, snapshot: u64, frames: u64) -> Self {
        Self {
            file,
            generation,
            snapshot,
            written: Mutex::new(WriteState {
                frames,
                synced: frames,
            }),
            synced: Mutex::new(frames),
        }
    }
}

/// What is left of other generations, and of a file that was never finished.
fn remove_others(folder: &Path, generation: u64) -> Result<(), JournalError> {
    let keep = read::name(generation);
    for item in std::fs::read_dir(folder)? {
        let item = item?;
        let name = item.file_name();
        let ours = name == "new" || name.to_str().is_some_and(|name| name.ends_with(".journal"));
        if ours && name != keep.as_str() {
            std::fs::remove_file(item.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::StreamKey;
    use crate::operation::StreamOperation;

    #[test]
    fn a_write_that_fails_is_the_last_one() {
        let name = format!("semel-journal-poisoned-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let (journal, _) = Journal::open(&folder, Fsync::Always).unwrap();
        let entry = Entry::Applied(StreamOperation::keyed(StreamKey(1)));
        journal.append(&[entry]).unwrap();
        assert!(!journal.is_poisoned());
        // A file that can't be written to.
        let path = folder.join(read::name(0));
        let whole = std::mem::replace(&mut journal.file.write().file, File::open(path).unwrap());
        let failed = journal.append(&[entry]);
        assert!(matches!(failed, Err(JournalError::Io(_))), "{failed:?}");
        assert!(journal.is_poisoned());
        journal.file.write().file = whole;
        let refused = journal.append(&[entry]);
        assert!(
            matches!(refused, Err(JournalError::Poisoned)),
            "{refused:?}"
        );
        let refused = journal.compact(Vec::new);
        assert!(
            matches!(refused, Err(JournalError::Poisoned)),
            "{refused:?}"
        );
        drop(journal);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
