//! `semel audit`: verifies the files of an audit trail.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use semel_server::audit::{ChainHead, VerificationBaseline, VerificationReport, verify};

use crate::exit::{self, Exit};
use crate::out;

/// Verifies the files of the audit trail.
#[derive(Subcommand)]
pub(crate) enum Audit {
    /// Checks that no entry was changed, added or removed.
    Verify(Verify),
}

/// Verifies the hash chain and the signatures of an audit trail, through all of its files.
#[derive(Args)]
#[command(after_help = "\
Everybody who can read the signing key can write a trail that verifies. Keep a copy of the trail,
or of its head, on another machine.

Examples:
  semel audit verify /var/lib/semel/audit.jsonl
  semel audit verify /var/lib/semel/audit.jsonl --key \"$KEY\" --head \"$OLD_HEAD\"")]
pub(crate) struct Verify {
    /// The file of the trail: `audit.file` of the settings.
    file: PathBuf,
    /// The public key that signs the trail. Without it, the key that the trail names itself is
    /// used.
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// The head that an earlier run printed: it must still be part of the trail.
    #[arg(long, value_name = "NUMBER:HASH")]
    head: Option<ChainHead>,
    /// Print JSON.
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
        let expected = VerificationBaseline {
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
        Exit::failed(exit::TAMPERED, "the audit trail was changed")
    }

    fn show(&self, found: &VerificationReport) {
        out::say(format_args!(
            "{} entries verified, {} of them checkpoints, {} with an erased actor",
            found.entries, found.checkpoints, found.erased
        ));
        if found.unsigned > 0 {
            let many = found.unsigned;
            out::say(format_args!(
                "{many} after the last checkpoint: hashed, but not signed yet"
            ));
        }
        if found.unchained > 0 {
            let many = found.unchained;
            out::say(format_args!(
                "{many} from before the hash chain: not checked"
            ));
        }
        if found.cut > 0 {
            let many = found.cut;
            out::say(format_args!("{many} lines are truncated, as after a crash"));
        }
        if let Some(key) = &found.key {
            let told = match self.key {
                Some(_) => "",
                None => " (named by the trail itself: compare it, or give --key)",
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
