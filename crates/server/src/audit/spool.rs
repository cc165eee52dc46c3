//! Reading the trail's files on from a position: what a copy of the trail is made from.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::files::full_files;

/// How many bytes are read at once.
const AT_ONCE: u64 = 256 * 1024;

/// Longer than any line.
const LONGEST: u64 = 64 * 1024;

/// Up to where the trail was read. Names entries rather than counting bytes alone: files are renamed when they are full,
/// and their lines get longer or shorter when a name is erased.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The name of the full file; none for the one that is written to.
    file: Option<String>,
    /// The first entry of the file.
    first: String,
    /// The last entry that was read.
    last: String,
    /// Where it ended.
    offset: u64,
}

impl Position {
    /// As it was saved; none where it never was, or can't be read.
    pub(super) fn load(place: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(place).ok()?).ok()
    }

    /// All of it or nothing. After a crash of the machine it may be an older one: then some entries are sent again.
    pub(super) fn save(&self, place: &Path) -> io::Result<()> {
        let mut beside = place.as_os_str().to_owned();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        std::fs::rename(beside, place)
    }
}

/// What comes next.
#[derive(Debug)]
pub(super) struct Lot {
    /// In their order; none where there is nothing more.
    pub(super) entries: Vec<Entry>,
    /// Where to read on.
    pub(super) position: Option<Position>,
    /// How many bytes it is.
    bytes: u64,
    /// How many bytes come after it.
    pub(super) behind: u64,
    /// Whether the position was in a file that is no longer there: its retention was over before it was read.
    pub(super) has_gap: bool,
}

impl Lot {
    /// How many bytes the other side doesn't have, as long as this lot isn't taken.
    pub(super) const fn bytes_not_sent(&self) -> u64 {
        if self.entries.is_empty() {
            self.behind
        } else {
            self.behind + self.bytes
        }
    }
}

/// Reads at most `most` entries on from `position`; from the oldest where there is none. Nobody must write meanwhile.
pub(super) fn read_on(path: &Path, position: Option<Position>, most: usize) -> io::Result<Lot> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    let found = match &position {
        None => Some((0, 0)),
        Some(position) => find(&files, position)?,
    };
    let has_gap = found.is_none();
    let (mut at, mut offset) = found.unwrap_or_default();
    let mut lines = read(&files[at], offset)?;
    while lines.is_empty() && at + 1 < files.len() {
        (at, offset) = (at + 1, 0);
        lines = read(&files[at], offset)?;
    }
    let mut entries = Vec::new();
    let began = offset;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if entries.len() == most {
            break;
        }
        offset += line.len() as u64;
        // A line that a crash cut short is no entry.
        entries.extend(serde_json::from_slice::<Entry>(line).ok());
    }
    let mut behind = 0_u64;
    for file in &files[at..] {
        behind += std::fs::metadata(file)?.len();
    }
    let position = match entries.last() {
        None => position,
        Some(last) => Some(Position {
            file: name_of_full(&files, at),
            first: first_of(&files[at])?.unwrap_or_default(),
            last: last.event_id.clone(),
            offset,
        }),
    };
    Ok(Lot {
        entries,
        position,
        bytes: offset - began,
        behind: behind.saturating_sub(offset),
        has_gap,
    })
}

fn name_of_full(files: &[PathBuf], at: usize) -> Option<String> {
    let is_full = at + 1 < files.len();
    let name = files[at].file_name()?.to_string_lossy().into_owned();
    is_full.then_some(name)
}

/// Which file the position is in, and where in it.
fn find(files: &[PathBuf], position: &Position) -> io::Result<Option<(usize, u64)>> {
    // The one that was written to may be a full one by now; it is among the newest.
    for at in (0..files.len()).rev() {
        let is_it = match &position.file {
            Some(name) => name_of_full(files, at).as_ref() == Some(name),
            None => first_of(&files[at])?.as_ref() == Some(&position.first),
        };
        if is_it {
            let file = &files[at];
            if ends_with(file, position)? {
                return Ok(Some((at, position.offset)));
            }
            return Ok(Some((at, after(file, &position.last)?)));
        }
    }
    Ok(None)
}

fn first_of(file: &Path) -> io::Result<Option<String>> {
    for line in BufReader::new(File::open(file)?).split(b'\n') {
        if let Ok(entry) = serde_json::from_slice::<Entry>(&line?) {
            return Ok(Some(entry.event_id));
        }
    }
    Ok(None)
}

/// Whether the last entry read still ends where it did.
fn ends_with(file: &Path, position: &Position) -> io::Result<bool> {
    let mut file = File::open(file)?;
    if file.metadata()?.len() < position.offset {
        return Ok(false);
    }
    let begin = position.offset.saturating_sub(LONGEST);
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

/// Where the entry of this id ends; the beginning where it isn't there, so that rather too much is sent than too little.
fn after(file: &Path, id: &str) -> io::Result<u64> {
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

/// Whole lines from `offset` on.
fn read(file: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = Vec::new();
    file.take(AT_ONCE).read_to_end(&mut lines)?;
    let whole = lines.iter().rposition(|byte| *byte == b'\n');
    lines.truncate(whole.map_or(0, |at| at + 1));
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

    fn ids(lot: &Lot) -> Vec<&str> {
        lot.entries
            .iter()
            .map(|entry| entry.event_id.as_str())
            .collect()
    }

    #[test]
    fn it_is_read_on_through_full_files_erasures_and_lines_cut_short() {
        let folder = folder("on");
        let path = folder.join("audit.jsonl");
        std::fs::write(
            &path,
            entry("a-0", "jo") + &entry("a-1", "jo") + "{\"event_id\":\"a-",
        )
        .unwrap();
        let lot = read_on(&path, None, 1).unwrap();
        assert_eq!(ids(&lot), ["a-0"]);
        assert!(lot.behind > 0 && !lot.has_gap);
        let lot = read_on(&path, lot.position, 10).unwrap();
        assert_eq!(ids(&lot), ["a-1"], "half a line is no entry yet");

        // Closed by the next process, full, and followed by another.
        let full = folder.join("audit.jsonl.0000000000000007-000001");
        std::fs::write(
            &full,
            std::fs::read_to_string(&path).unwrap() + "\n" + &entry("a-2", "jo"),
        )
        .unwrap();
        std::fs::write(&path, entry("b-0", "jo")).unwrap();
        let lot = read_on(&path, lot.position, 10).unwrap();
        assert_eq!(ids(&lot), ["a-2"]);
        // An erasure makes every line of it longer.
        let longer = std::fs::read_to_string(&full)
            .unwrap()
            .replace("jo", "somebody else");
        std::fs::write(&full, longer).unwrap();
        let next = read_on(&path, lot.position.clone(), 10).unwrap();
        assert_eq!(ids(&next), ["b-0"]);
        assert_eq!(next.behind, 0);
        let none = read_on(&path, next.position.clone(), 10).unwrap();
        assert!(none.entries.is_empty() && none.position == next.position && !none.has_gap);

        // Removed before it was read: that is said, and what is left is read.
        std::fs::remove_file(&full).unwrap();
        let lot = read_on(&path, lot.position, 10).unwrap();
        assert_eq!(ids(&lot), ["b-0"]);
        assert!(lot.has_gap);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_position_is_found_again_after_a_restart() {
        let folder = folder("again");
        let (path, place) = (
            folder.join("audit.jsonl"),
            folder.join("audit.jsonl.copy.position"),
        );
        std::fs::write(&path, entry("a-0", "jo") + &entry("a-1", "jo")).unwrap();
        assert_eq!(Position::load(&place), None);
        let lot = read_on(&path, None, 1).unwrap();
        let position = lot.position.unwrap();
        position.save(&place).unwrap();
        assert_eq!(Position::load(&place), Some(position));
        let lot = read_on(&path, Position::load(&place), 10).unwrap();
        assert_eq!(ids(&lot), ["a-1"]);
        assert!(
            full_files(&path).unwrap().is_empty(),
            "a position is no file of the trail"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
