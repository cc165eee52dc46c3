//! Reading a journal: whole, with a tail that was never finished, or damaged.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::JournalError;
use super::frame::{Entry, FRAME, FramePosition, decode};

/// What a file has to say.
pub(super) struct Contents {
    pub(super) entries: Vec<Entry>,
    /// How many whole frames there are. What comes after them is to be cut off.
    pub(super) frames: u64,
    /// How many entries the snapshot has.
    pub(super) snapshot: u64,
}

/// The newest journal in a folder, with its generation.
pub(super) fn newest(folder: &Path) -> Result<Option<(u64, PathBuf)>, JournalError> {
    let mut newest = None;
    for item in std::fs::read_dir(folder)? {
        let path = item?.path();
        let generation = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(generation);
        if let Some(generation) = generation
            && newest.as_ref().is_none_or(|(other, _)| generation > *other)
        {
            newest = Some((generation, path));
        }
    }
    Ok(newest)
}

pub(super) fn name(generation: u64) -> String {
    format!("{generation:016x}.journal")
}

fn generation(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(".journal")?, 16).ok()
}

/// Reads a file to the end of what is whole.
///
/// The snapshot was on disk before the file had its name, so a broken frame in it is damage. After
/// it, a broken frame is where writing ended, unless a later frame says that it was on disk
/// already.
pub(super) fn read(path: &Path, generation: u64) -> Result<Contents, JournalError> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut frames = Frames {
        file: &mut file,
        generation,
        index: 0,
    };
    let damaged = |index| JournalError::Damaged { frame: index };
    let Some(Some((Entry::Head { snapshot }, _))) = frames.next()? else {
        return Err(damaged(0));
    };
    let mut entries = Vec::new();
    loop {
        let index = frames.index;
        match frames.next()? {
            Some(Some((entry, _))) => entries.push(entry),
            None if index > snapshot => {
                return Ok(Contents {
                    entries,
                    frames: index,
                    snapshot,
                });
            }
            Some(None) if index > snapshot => {
                while let Some(later) = frames.next()? {
                    if later.is_some_and(|(_, synced)| synced > index) {
                        return Err(damaged(index));
                    }
                }
                return Ok(Contents {
                    entries,
                    frames: index,
                    snapshot,
                });
            }
            None | Some(None) => return Err(damaged(index)),
        }
    }
}

struct Frames<'a> {
    file: &'a mut BufReader<File>,
    generation: u64,
    index: u64,
}

impl Frames<'_> {
    /// None at the end, `Some(None)` for what is no frame, such as half of one.
    #[expect(clippy::option_option, reason = "the end, nothing, something")]
    fn next(&mut self) -> std::io::Result<Option<Option<(Entry, u64)>>> {
        let mut bytes = Vec::with_capacity(FRAME);
        self.file.take(FRAME as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let place = FramePosition {
            generation: self.generation,
            index: self.index,
        };
        self.index += 1;
        Ok(Some(decode(&bytes, place)))
    }
}
