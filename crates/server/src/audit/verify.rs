//! Verifying the trail's files: whether anybody changed, added or removed an entry.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::chain::{CHECKPOINT, Head, Link};
use super::entry::Entry;
use super::files::full_files;
use super::seal::is_signed;

/// What the trail is held against, where it is known from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The public key that signs the trail. The key of the first checkpoint, where not given.
    pub key: Option<String>,
    /// A link that was the chain's head at an earlier time: it must still be there.
    pub head: Option<Head>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Entries whose link holds.
    pub entries: u64,
    /// Checkpoints among them.
    pub checkpoints: u64,
    /// Entries without a name because it was erased.
    pub erased: u64,
    /// Entries from before the chain began.
    pub unchained: u64,
    /// Lines that are no entries: a crash cuts a line short.
    pub cut: u64,
    /// Entries behind the last checkpoint: hashed, and not signed yet.
    pub unsigned: u64,
    /// The key that signed it.
    pub key: Option<String>,
    /// The number and hash of the last link, `NUMBER:HASH`.
    pub head: Option<String>,
    /// What is wrong, the first few.
    pub problems: Vec<String>,
}

/// How many problems are told.
const MOST_PROBLEMS: usize = 20;

/// Reads every file of the trail at `path`, oldest first.
///
/// # Errors
/// Where a file can't be read.
pub fn verify(path: &Path, expected: &Expected) -> io::Result<Verified> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    let mut walk = Walk {
        expected,
        head: None,
        has_seen_head: false,
        found: Verified {
            key: expected.key.clone(),
            ..Verified::default()
        },
    };
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let lines = BufReader::new(File::open(file)?).split(b'\n');
        for (index, line) in lines.enumerate() {
            if let Err(problem) = walk.line(&line?)
                && walk.found.problems.len() < MOST_PROBLEMS
            {
                let problem = format!("{name}, line {}: {problem}", index + 1);
                walk.found.problems.push(problem);
            }
        }
    }
    Ok(walk.end())
}

struct Walk<'a> {
    expected: &'a Expected,
    head: Option<Head>,
    has_seen_head: bool,
    found: Verified,
}

impl Walk<'_> {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let Ok(mut entry) = serde_json::from_slice::<Entry>(line) else {
            self.found.cut += u64::from(!line.is_empty());
            return Ok(());
        };
        let is_as_written = serde_json::to_vec(&entry).is_ok_and(|written| written == line);
        let Some(link) = entry.chain.take() else {
            if self.head.is_some() {
                return Err("this entry has no link: somebody else wrote it".to_owned());
            }
            self.found.unchained += 1;
            return Ok(());
        };
        let before = match &self.head {
            Some(head) => head.clone(),
            None => start(&entry)?,
        };
        // From here on the chain goes on behind this entry: one change is told once.
        self.head = Some(Head::of(&link));
        follows(&before, &entry, &link, is_as_written)?;
        if entry.kind == CHECKPOINT {
            self.checkpoint(&before, &entry)?;
        } else {
            self.found.unsigned += 1;
        }
        self.found.entries += 1;
        self.has_seen_head |= self.expected.head == self.head;
        if link.erased.is_some() {
            self.found.erased += 1;
            if entry.is_of_an_operator() {
                return Err("the name of an operator was erased".to_owned());
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, before: &Head, entry: &Entry) -> Result<(), String> {
        let (signed, key, signature) =
            signed(entry).ok_or_else(|| "this checkpoint can't be read".to_owned())?;
        let known = self.found.key.get_or_insert_with(|| key.to_owned());
        if known != key {
            return Err("another key signed this checkpoint".to_owned());
        }
        if signed != *before || !is_signed(key, &before.message(), signature) {
            return Err("the signature of this checkpoint does not hold".to_owned());
        }
        self.found.checkpoints += 1;
        self.found.unsigned = 0;
        Ok(())
    }

    fn end(mut self) -> Verified {
        if self.expected.head.is_some() && !self.has_seen_head {
            let problem = "the link that was its head earlier is not in the trail";
            self.found.problems.push(problem.to_owned());
        }
        if self.head.is_none() {
            let problem = "the trail has no chain";
            self.found.problems.push(problem.to_owned());
        }
        self.found.head = self
            .head
            .map(|head| format!("{}:{}", head.number, head.hash));
        self.found
    }
}

/// The chain before the oldest entry that is left, which has to be a checkpoint.
fn start(entry: &Entry) -> Result<Head, String> {
    let is_checkpoint = entry.kind == CHECKPOINT;
    let start = signed(entry).filter(|_| is_checkpoint);
    let (head, _, _) = start.ok_or_else(|| {
        "the oldest entry of the chain is no checkpoint: entries before it were removed".to_owned()
    })?;
    Ok(head)
}

/// What a checkpoint signs, the key and the signature.
fn signed(entry: &Entry) -> Option<(Head, &str, &str)> {
    let text = |name| entry.detail.get(name).and_then(Value::as_str);
    let head = Head {
        number: entry.detail.get("number")?.as_u64()?,
        hash: text("hash")?.to_owned(),
    };
    Some((head, text("key")?, text("signature")?))
}

fn follows(before: &Head, entry: &Entry, link: &Link, is_as_written: bool) -> Result<(), String> {
    if link.number != before.number + 1 {
        let (from, to) = (before.number, link.number);
        return Err(format!("entry {to} follows entry {from}: some are missing"));
    }
    if !is_as_written || before.hash_of(entry, link) != link.hash {
        return Err(format!(
            "entry {} was changed, or the one before it",
            link.number
        ));
    }
    Ok(())
}

impl std::str::FromStr for Head {
    type Err = &'static str;

    /// `NUMBER:HASH`, as [`Verified::head`] has it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':');
        let parsed = parts.and_then(|(number, hash)| Some((number.parse().ok()?, hash)));
        let (number, hash) = parsed.ok_or("expected NUMBER:HASH")?;
        Ok(Self {
            number,
            hash: hash.to_owned(),
        })
    }
}
