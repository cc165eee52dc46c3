//! Budgets: how many instructions each hot path may take.
//!
//! A path that takes 3 % more than its budget fails the check, and so does one that takes 3 %
//! less: the budget then follows, so that the gain is kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;

use crate::count::instructions;
use crate::ops::Op;

/// How far a count may be from its budget, as a share of it.
const TOLERANCE: f64 = 0.03;

type Counts = BTreeMap<String, u64>;

/// Counts every path and compares it with `bench/core/budgets.json`, or writes that file.
///
/// # Errors
/// Where a path is outside its budget, or could not be counted.
pub fn check(write: bool) -> anyhow::Result<()> {
    let mut counts = Counts::new();
    for op in Op::value_variants() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of instructions, far below 2^53"
        )]
        let count = instructions(*op)?.round() as u64;
        counts.insert(op.name(), count);
    }
    let path = file();
    if write {
        let text = serde_json::to_string_pretty(&counts)? + "\n";
        return std::fs::write(&path, text).with_context(|| path.display().to_string());
    }
    let budgets = read(&path)?;
    println!("{}", table(&budgets, &counts));
    let outside = outside(&budgets, &counts);
    if outside.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\n`cargo xtask bench core --write-budgets` writes the new counts; the commit says why they changed",
        outside.join("\n")
    )
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("budgets.json")
}

fn read(path: &Path) -> anyhow::Result<Counts> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// One sentence for each path that is outside its budget or has none.
fn outside(budgets: &Counts, counts: &Counts) -> Vec<String> {
    let mut sentences = Vec::new();
    for (name, &count) in counts {
        let Some(&budget) = budgets.get(name) else {
            sentences.push(format!("{name}: {count} instructions, and no budget"));
            continue;
        };
        let change = change(budget, count);
        if change.abs() > TOLERANCE {
            let percent = change * 100.0;
            sentences.push(format!(
                "{name}: {count} instructions, {percent:+.1} % of its budget of {budget}"
            ));
        }
    }
    let gone = budgets.keys().filter(|name| !counts.contains_key(*name));
    sentences.extend(gone.map(|name| format!("{name}: a budget for a path that does not exist")));
    sentences
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn change(budget: u64, count: u64) -> f64 {
    count as f64 / budget as f64 - 1.0
}

fn table(budgets: &Counts, counts: &Counts) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        let budget = budgets.get(name).copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "{name:<14} {count:>8} instructions, budget {budget:>8}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rows: &[(&str, u64)]) -> Counts {
        rows.iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect()
    }

    #[test]
    fn three_percent_either_way_is_within_the_budget() {
        let budgets = counts(&[("run", 10_000), ("replay", 10_000)]);
        let within = counts(&[("run", 10_290), ("replay", 9_710)]);
        assert_eq!(outside(&budgets, &within), Vec::<String>::new());
    }

    #[test]
    fn slower_faster_and_unknown_paths_are_reported() {
        let budgets = counts(&[("run", 10_000), ("replay", 10_000), ("gone", 1)]);
        let counted = counts(&[("run", 10_400), ("replay", 9_600), ("new", 5)]);
        assert_eq!(
            outside(&budgets, &counted),
            [
                "new: 5 instructions, and no budget",
                "replay: 9600 instructions, -4.0 % of its budget of 10000",
                "run: 10400 instructions, +4.0 % of its budget of 10000",
                "gone: a budget for a path that does not exist",
            ]
        );
    }

    #[test]
    fn every_path_has_a_budget() {
        let budgets = read(&file()).unwrap();
        let names: Vec<String> = Op::value_variants().iter().map(|op| op.name()).collect();
        for name in names {
            assert!(budgets.contains_key(&name), "{name} has no budget");
        }
    }
}
