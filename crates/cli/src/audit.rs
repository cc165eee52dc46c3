//! `semel audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use semel_server::audit::{Expected, Head, Verified, verify};

use crate::exit::{self, Exit};
use crate::out;

/// Looks at the audit trail's files.
#[derive(Subcommand)]
pub(crate) enum Audit {
    /// Checks that nobody changed, added or removed an entry.
    Verify(Verify),
}

/// Follows the chain of hashes through all files of a trail, and checks its signatures.
#[derive(Args)]
#[command(after_help = "\
Whoever can read the signing key can write a trail that verifies. Keep a copy of the trail, or its head, on another machine.

Examples:
  semel audit verify /var/lib/semel/audit.jsonl
  semel audit verify /var/lib/semel/audit.jsonl --key \"$PUBLIC_KEY\" --head \"$HEAD_OF_YESTERDAY\"")]
pub(crate) struct Verify {
    /// The trail: `audit.file` of the settings.
    file: PathBuf,
    /// The public key that signs it; the one that it names itself, where not given.
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// What an earlier run told as its head: it must still be there.
    #[arg(long, value_name = "NUMBER:HASH")]
    head: Option<Head>,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(crate) fn run(self) -> Exit {
        match self {
            Self::Verify(verify) => verify.run(),
        }
    }
}

impl Verify {
    fn run(self) -> Exit {
        let expected = Expected {
            key: self.key.clone(),
            head: self.head.clone(),
        };
        let found = match verify(&self.file, &expected) {
            Ok(found) => found,
            Err(error) => {
                let message = format!("{}: {error}", self.file.display());
                return Exit::failed(exit::CONFIG, message);
            }
        };
        if self.json {
            out::json(&found);
        } else {
            self.show(&found);
        }
        if found.problems.is_empty() {
            return Exit::Ok;
        }
        Exit::failed(exit::TAMPERED, "the audit trail is not as it was written")
    }

    fn show(&self, found: &Verified) {
        out::say(format_args!(
            "{} entries hold, {} of them checkpoints, {} without their actor's name",
            found.entries, found.checkpoints, found.erased
        ));
        if found.unsigned > 0 {
            let many = found.unsigned;
            out::say(format_args!(
                "{many} behind the last checkpoint: hashed, and not signed yet"
            ));
        }
        if found.unchained > 0 {
            let many = found.unchained;
            out::say(format_args!(
                "{many} from before the chain began: not checked"
            ));
        }
        if found.cut > 0 {
            let many = found.cut;
            out::say(format_args!(
                "{many} lines are cut short, as a crash leaves them"
            ));
        }
        if let Some(key) = &found.key {
            let told = match self.key {
                Some(_) => "",
                None => " (as the trail says itself: compare it, or give --key)",
            };
            out::say(format_args!("signed by {key}{told}"));
        }
        if let Some(head) = &found.head {
            out::say(format_args!("head {head}"));
        }
        for problem in &found.problems {
            out::say(format_args!("CHANGED: {problem}"));
        }
    }
}
