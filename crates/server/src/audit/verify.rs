//! Verification of the trail's files: detects changed, added and removed entries.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::chain::{CHECKPOINT, ChainHead};
use super::entry::{Entry, Link};
use super::files::full_files;
use super::signing_key::is_signed;

/// The expected key and head of a trail, if they are known.
#[derive(Clone, Debug, Default)]
pub struct VerificationBaseline {
    /// The public key that signs the trail. Default: the key of the first checkpoint.
    pub key: Option<String>,
    /// An earlier head of the chain, which the trail must contain.
    pub head: Option<ChainHead>,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerificationReport {
    /// The number of valid entries.
    pub entries: u64,
    /// The number of checkpoints among them.
    pub checkpoints: u64,
    /// The number of entries with an erased name.
    pub erased: u64,
    /// The number of entries before the start of the chain.
    pub unchained: u64,
    /// The number of lines that are not entries, for example because of a crash.
    pub cut: u64,
    /// The number of entries after the last checkpoint, which are hashed but not signed.
    pub unsigned: u64,
    /// The key that signed the trail.
    pub key: Option<String>,
    /// The number and hash of the last link, `NUMBER:HASH`.
    pub head: Option<String>,
    /// The first problems.
    pub problems: Vec<String>,
}

/// The maximum number of reported problems.
const MAX_PROBLEMS: usize = 20;

/// Verifies all files of the trail at `path`, oldest first.
///
/// # Errors
/// If a file cannot be read.
pub fn verify(path: &Path, expected: &VerificationBaseline) -> io::Result<VerificationReport> {
    let mut files = full_files(path)?;
    files.push(path.to_owned());
    let mut verifier = Verifier {
        expected,
        head: None,
        has_seen_head: false,
        found: VerificationReport {
            key: expected.key.clone(),
            ..VerificationReport::default()
        },
    };
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let lines = BufReader::new(File::open(file)?).split(b'\n');
        for (index, line) in lines.enumerate() {
            if let Err(problem) = verifier.check_line(&line?)
                && verifier.found.problems.len() < MAX_PROBLEMS
            {
                let problem = format!("{name}, line {}: {problem}", index + 1);
                verifier.found.problems.push(problem);
            }
        }
    }
    Ok(verifier.finish())
}

struct Verifier<'a> {
    expected: &'a VerificationBaseline,
    head: Option<ChainHead>,
    has_seen_head: bool,
    found: VerificationReport,
}

impl Verifier<'_> {
    fn check_line(&mut self, line: &[u8]) -> Result<(), String> {
        let Ok(mut entry) = serde_json::from_slice::<Entry>(line) else {
            self.found.cut += u64::from(!line.is_empty());
            return Ok(());
        };
        let is_as_written = serde_json::to_vec(&entry).is_ok_and(|written| written == line);
        let Some(link) = entry.chain.take() else {
            if self.head.is_some() {
                return Err("this entry has no link, so another program wrote it".to_owned());
            }
            self.found.unchained += 1;
            return Ok(());
        };
        let before = match &self.head {
            Some(head) => head.clone(),
            None => chain_start(&entry)?,
        };
        // The chain continues after this entry, so that one change is reported once.
        self.head = Some(ChainHead::from_link(&link));
        check_link(&before, &entry, &link, is_as_written)?;
        if entry.kind == CHECKPOINT {
            self.check_checkpoint(&before, &entry)?;
        } else {
            self.found.unsigned += 1;
        }
        self.found.entries += 1;
        self.has_seen_head |= self.expected.head == self.head;
        if link.erased.is_some() {
            self.found.erased += 1;
            if entry.is_by_operator() {
                return Err("the name of an operator was erased".to_owned());
            }
        }
        Ok(())
    }

    fn check_checkpoint(&mut self, before: &ChainHead, entry: &Entry) -> Result<(), String> {
        let (signed, key, signature) =
            read_checkpoint(entry).ok_or_else(|| "this checkpoint can't be read".to_owned())?;
        let known = self.found.key.get_or_insert_with(|| key.to_owned());
        if known != key {
            return Err("this checkpoint has the signature of another key".to_owned());
        }
        if signed != *before || !is_signed(key, &before.message(), signature) {
            return Err("the signature of this checkpoint is invalid".to_owned());
        }
        self.found.checkpoints += 1;
        self.found.unsigned = 0;
        Ok(())
    }

    fn finish(mut self) -> VerificationReport {
        if self.expected.head.is_some() && !self.has_seen_head {
            let problem = "the expected head is not in the trail";
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

/// The head before the oldest entry, which must be a checkpoint.
fn chain_start(entry: &Entry) -> Result<ChainHead, String> {
    let is_checkpoint = entry.kind == CHECKPOINT;
    let start = read_checkpoint(entry).filter(|_| is_checkpoint);
    let (head, _, _) = start.ok_or_else(|| {
        "the oldest entry of the chain is not a checkpoint: earlier entries were removed".to_owned()
    })?;
    Ok(head)
}

/// The signed head, the key and the signature of a checkpoint.
fn read_checkpoint(entry: &Entry) -> Option<(ChainHead, &str, &str)> {
    let text = |name| entry.detail.get(name).and_then(Value::as_str);
    let head = ChainHead {
        number: entry.detail.get("number")?.as_u64()?,
        hash: text("hash")?.to_owned(),
    };
    Some((head, text("key")?, text("signature")?))
}

fn check_link(
    before: &ChainHead,
    entry: &Entry,
    link: &Link,
    is_as_written: bool,
) -> Result<(), String> {
    if link.number != before.number + 1 {
        let (from, to) = (before.number, link.number);
        return Err(format!(
            "entry {to} follows entry {from}: entries are missing"
        ));
    }
    if !is_as_written || before.compute_hash(entry, link) != link.hash {
        return Err(format!(
            "entry {} or the one before it was changed",
            link.number
        ));
    }
    Ok(())
}

impl std::str::FromStr for ChainHead {
    type Err = &'static str;

    /// Reads `NUMBER:HASH`, the form of [`VerificationReport::head`].
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
