//! `cargo xtask ci`: every check, the tests last.
//!
//! Steps run side by side in a few lanes: servers are installed while the compiler works, and what
//! mostly waits runs beside what mostly computes. Each step is a process of its own (`cargo xtask
//! ci --only NAME`) with a log of its own, which is printed when the step ends. The log of the
//! tests, or of the step that failed, is printed last: readers look for it at the end.

mod advisories;
mod lanes;
mod quick;
mod retried;
mod steps;
mod tools;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;

use crate::table::{seconds, table};
use crate::workspace::Workspace;
use steps::STEPS;

/// `cargo xtask ci`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Run only what needs nothing but Rust: no server, no other tool, no network beyond the
    /// crates.
    #[arg(long)]
    quick: bool,
    /// Run one step alone, by its name.
    #[arg(long, conflicts_with = "quick")]
    only: Option<String>,
    /// Run every step, also after one has failed.
    #[arg(long, conflicts_with_all = ["quick", "only"])]
    keep_going: bool,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "note")]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// Another step failed before this one began or ended.
    NotReached,
}

/// One step of a run, for the closing table and the result file.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    step: &'static str,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Runs all steps, the quick ones, or one.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let Some(name) = &options.only {
        let step = STEPS.iter().find(|step| step.name == name);
        let names = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>();
        let step =
            step.with_context(|| format!("no step {name}; there are: {}", names().join(", ")))?;
        return (step.run)(workspace);
    }
    if options.quick {
        return quick::run(workspace);
    }
    let rows = lanes::run(workspace, STEPS, options.keep_going)?;
    workspace.write_result("ci", &rows)?;
    print_table(&rows);
    // The log of the step that failed, or of the tests, closes the output.
    let failed = failure(&rows);
    let closing = failed.map_or(steps::LAST, |(step, _)| step);
    let log = lanes::log_of(workspace, closing)?;
    println!("{}", log.trim_end());
    match failed {
        None => Ok(()),
        Some((step, reason)) => bail!("{step}: {reason}"),
    }
}

fn failure(rows: &[Row]) -> Option<(&'static str, &str)> {
    rows.iter().find_map(|row| match &row.outcome {
        Outcome::Failed(reason) => Some((row.step, reason.as_str())),
        _ => None,
    })
}

fn print_table(rows: &[Row]) {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::NotReached => "not reached",
    };
    let cells = rows.iter().map(|row| {
        [
            row.step.to_owned(),
            word(&row.outcome).to_owned(),
            seconds(row.seconds),
        ]
    });
    println!("\n{}", table(&["step", "result", "time"], cells));
}
