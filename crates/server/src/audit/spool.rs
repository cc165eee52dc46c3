//! Reading the files of the trail from a position, for replication.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::files::full_files;

/// The maximum number of bytes of one read.
const READ_BYTES: u64 = 256 * 1024;

/// More bytes than any line has.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// The position of a reader. It names entries and not only an offset, because full files are
/// renamed, and an erasure changes the length of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The name of a full file; `None` for the current file.
    file: Option<String>,
    /// The id of the first entry of the file.
    first: String,
    /// The id of the last read entry.
    last: String,
    /// The offset of its end.
    offset: u64,
}

impl Position {
    /// Reads a saved position; `None` if there is none or it cannot be read.
    pub(super) fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Saves the position atomically. After a crash of the machine it may be an older one, so that
    /// some entries are sent again.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        std::fs::rename(temporary, path)
    }
}

/// The entries after a position.
#[derive(Debug)]
pub(super) struct Batch {
    /// The entries in order; empty at the end of the trail.
    pub(super) entries: Vec<Entry>,
    /// The position after the batch.
    pub(super) position: Option<Position>,
    /// The size of the batch.
    bytes: u64,
    /// The number of bytes after the batch.
    pub(super) behind: u64,
    /// Whether the file of the position was removed before it was read.
    pub(super) has_gap: bool,
}

impl Batch {
    /// The number of bytes that the copy does not have before it accepts this batch.
    pub(super) const fn bytes_not_sent(&self) -> u64 {
        if self.entries.is_empty() {
            self.behind
        } else {
            self.behind + self.bytes
        }
    }
}

/// Reads at most `most` entries after `position`, or from the oldest one. The caller must hold the
/// lock of the files.
pub(super) fn read_after(
    path: &Path,
    position: Option<Position>,
    most: usize,
) -> io::Result<Batch> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    let found = match &position {
        None => Some((0, 0)),
        Some(position) => locate(&files, position)?,
    };
    let has_gap = found.is_none();
    let (mut at, mut offset) = found.unwrap_or_default();
    let mut lines = read_lines(&files[at], offset)?;
    while lines.is_empty() && at + 1 < files.len() {
        (at, offset) = (at + 1, 0);
        lines = read_lines(&files[at], offset)?;
    }
    let mut entries = Vec::new();
    let began = offset;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if entries.len() == most {
            break;
        }
        offset += line.len() as u64;
        // A crash may have truncated a line.
        entries.extend(serde_json::from_slice::<Entry>(line).ok());
    }
    let mut behind = 0_u64;
    for file in &files[at..] {
        behind += std::fs::metadata(file)?.len();
    }
    let position = match entries.last() {
        None => position,
        Some(last) => Some(Position {
            file: full_file_name(&files, at),
            first: first_entry_id(&files[at])?.unwrap_or_default(),
            last: last.event_id.clone(),
            offset,
        }),
    };
    Ok(Batch {
        entries,
        position,
        bytes: offset - began,
        behind: behind.saturating_sub(offset),
        has_gap,
    })
}

fn full_file_name(files: &[PathBuf], at: usize) -> Option<String> {
    let is_full = at + 1 < files.len();
    let name = files[at].file_name()?.to_string_lossy().into_owned();
    is_full.then_some(name)
}

/// The index of the file of a position, and the offset in it.
fn locate(files: &[PathBuf], position: &Position) -> io::Result<Option<(usize, u64)>> {
    // The current file of the position may be a full one now. It is among the newest.
    for at in (0..files.len()).rev() {
        let is_match = match &position.file {
            Some(name) => full_file_name(files, at).as_ref() == Some(name),
            None => first_entry_id(&files[at])?.as_ref() == Some(&position.first),
        };
        if is_match {
            let file = &files[at];
            if ends_with(file, position)? {
                return Ok(Some((at, position.offset)));
            }
            return Ok(Some((at, find_end(file, &position.last)?)));
        }
    }
    Ok(None)
}

fn first_entry_id(file: &Path) -> io::Result<Option<String>> {
    for line in BufReader::new(File::open(file)?).split(b'\n') {
        if let Ok(entry) = serde_json::from_slice::<Entry>(&line?) {
            return Ok(Some(entry.event_id));
        }
    }
    Ok(None)
}

/// Whether the last read entry still ends at its offset.
fn ends_with(file: &Path, position: &Position) -> io::Result<bool> {
    let mut file = File::open(file)?;
    if file.metadata()?.len() < position.offset {
        return Ok(false);
    }
    let begin = position.offset.saturating_sub(MAX_LINE_BYTES);
    file.seek(SeekFrom::Start(begin))?;
    let mut before = Vec::new();
    file.take(position.offset - begin)
        .read_to_end(&mut before)?;
    let Some(text) = before.strip_suffix(b"\n") else {
        return Ok(false);
    };
    let line = text
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let entry = serde_json::from_slice::<Entry>(line);
    Ok(entry.is_ok_and(|entry| entry.event_id == position.last))
}

/// The end of the entry with this id. If it is missing, the beginning of the file, so that no entry
/// is skipped.
fn find_end(file: &Path, id: &str) -> io::Result<u64> {
    let mut offset = 0;
    for line in BufReader::new(File::open(file)?).split(b'\n') {
        let line = line?;
        offset += line.len() as u64 + 1;
        if serde_json::from_slice::<Entry>(&line).is_ok_and(|entry| entry.event_id == id) {
            return Ok(offset);
        }
    }
    Ok(0)
}

/// The complete lines after `offset`.
fn read_lines(file: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut lines)?;
    let end = lines.iter().rposition(|byte| *byte == b'\n');
    lines.truncate(end.map_or(0, |at| at + 1));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, actor: &str) -> String {
        format!(
            "{{\"event_id\":\"{id}\",\"time\":\"2026-11-15T12:00:00Z\",\"type\":\"test\",\"actor\":\"{actor}\"}}\n"
        )
    }

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("semel-spool-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn ids(batch: &Batch) -> Vec<&str> {
        batch
            .entries
            .iter()
            .map(|entry| entry.event_id.as_str())
            .collect()
    }

    #[test]
    fn reading_survives_rotation_erasure_and_truncated_lines() {
        let folder = folder("on");
        let path = folder.join("audit.jsonl");
        std::fs::write(
            &path,
            entry("a-0", "jo") + &entry("a-1", "jo") + "{\"event_id\":\"a-",
        )
        .unwrap();
        let batch = read_after(&path, None, 1).unwrap();
        assert_eq!(ids(&batch), ["a-0"]);
        assert!(batch.behind > 0 && !batch.has_gap);
        let batch = read_after(&path, batch.position, 10).unwrap();
        assert_eq!(ids(&batch), ["a-1"], "an incomplete line is not an entry");

        // The file is full now, and followed by another one.
        let full = folder.join("audit.jsonl.0000000000000007-000001");
        std::fs::write(
            &full,
            std::fs::read_to_string(&path).unwrap() + "\n" + &entry("a-2", "jo"),
        )
        .unwrap();
        std::fs::write(&path, entry("b-0", "jo")).unwrap();
        let batch = read_after(&path, batch.position, 10).unwrap();
        assert_eq!(ids(&batch), ["a-2"]);
        // An erasure changes the length of every line.
        let longer = std::fs::read_to_string(&full)
            .unwrap()
            .replace("jo", "somebody else");
        std::fs::write(&full, longer).unwrap();
        let next = read_after(&path, batch.position.clone(), 10).unwrap();
        assert_eq!(ids(&next), ["b-0"]);
        assert_eq!(next.behind, 0);
        let none = read_after(&path, next.position.clone(), 10).unwrap();
        assert!(none.entries.is_empty() && none.position == next.position && !none.has_gap);

        // If the file is removed before it is read, there is a gap, and reading continues.
        std::fs::remove_file(&full).unwrap();
        let batch = read_after(&path, batch.position, 10).unwrap();
        assert_eq!(ids(&batch), ["b-0"]);
        assert!(batch.has_gap);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn saved_position_is_found_after_a_restart() {
        let folder = folder("again");
        let (path, place) = (
            folder.join("audit.jsonl"),
            folder.join("audit.jsonl.copy.position"),
        );
        std::fs::write(&path, entry("a-0", "jo") + &entry("a-1", "jo")).unwrap();
        assert_eq!(Position::load(&place), None);
        let batch = read_after(&path, None, 1).unwrap();
        let position = batch.position.unwrap();
        position.save(&place).unwrap();
        assert_eq!(Position::load(&place), Some(position));
        let batch = read_after(&path, Position::load(&place), 10).unwrap();
        assert_eq!(ids(&batch), ["a-1"]);
        assert!(
            full_files(&path).unwrap().is_empty(),
            "a position file is not a file of the trail"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
