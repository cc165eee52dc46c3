//! Instructions, counted by callgrind as the difference between two runs of different length, so
//! that start-up doesn't count.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::keys::MOST_TIMES;
use crate::ops::Op;

/// Instructions of one `op`, start-up not counted.
pub(crate) fn instructions(op: Op) -> anyhow::Result<f64> {
    eprintln!("counting: {}", op.title());
    let (few, many) = (MOST_TIMES / 3, MOST_TIMES);
    let more = counted(op, many)?.saturating_sub(counted(op, few)?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let each = more as f64 / (many - few) as f64;
    Ok(each)
}

fn counted(op: Op, times: u64) -> anyhow::Result<u64> {
    let me = std::env::current_exe()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args(["op", &op.name(), &times.to_string()])
        .output()
        .context(
            "could not start valgrind; install it, for example with apt-get install valgrind",
        )?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("the counted run of {} failed:\n{said}", op.name());
    }
    let total = said
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .map(|(_, n)| n.trim());
    total
        .and_then(|n| n.parse().ok())
        .with_context(|| format!("callgrind gave no total:\n{said}"))
}
