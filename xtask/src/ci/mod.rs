//! `cargo xtask ci`: every check, the tests last.
//!
//! The tests are last because what reads the output looks for their summary at its end.

mod steps;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::table::{seconds, table};
use crate::time::Stopwatch;
use crate::workspace::Workspace;
pub(crate) use steps::EXAMPLES;
use steps::{STEPS, Step};

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "note")]
pub(crate) enum Outcome {
    Passed,
    /// It could not be done here, and says so: not the same as passed.
    NotChecked(String),
    Failed(String),
    /// An earlier one failed.
    NotReached,
}

#[derive(Debug, Serialize)]
struct Row {
    step: &'static str,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Runs the steps in order and stops at the first that fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut rows: Vec<Row> = Vec::new();
    for (number, step) in STEPS.iter().enumerate() {
        if failure(&rows).is_some() {
            rows.push(Row {
                step: step.name,
                seconds: 0.0,
                outcome: Outcome::NotReached,
            });
            continue;
        }
        if number + 1 == STEPS.len() {
            print_table(&rows);
        }
        println!("\n=== {}/{} {}", number + 1, STEPS.len(), step.name);
        rows.push(run_step(workspace, step));
    }
    workspace.write_result("ci", &rows)?;
    let Some((step, reason)) = failure(&rows) else {
        return Ok(());
    };
    print_table(&rows);
    bail!("{step}: {reason}")
}

fn run_step(workspace: &Workspace, step: &Step) -> Row {
    let watch = Stopwatch::start();
    let outcome = match (step.run)(workspace) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    let row = Row {
        step: step.name,
        seconds: watch.seconds(),
        outcome,
    };
    // After the last step nothing is printed: its own summary stands at the end.
    if !step.closes {
        println!(
            "--- {} {} after {}",
            row.step,
            word(&row.outcome),
            seconds(row.seconds)
        );
    }
    row
}

fn failure(rows: &[Row]) -> Option<(&'static str, &str)> {
    rows.iter().find_map(|row| match &row.outcome {
        Outcome::Failed(reason) => Some((row.step, reason.as_str())),
        _ => None,
    })
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::NotChecked(why) => format!("not checked: {why}"),
        Outcome::Failed(_) => "FAILED".to_owned(),
        Outcome::NotReached => "not reached".to_owned(),
    }
}

fn print_table(rows: &[Row]) {
    let cells = rows.iter().map(|row| {
        [
            row.step.to_owned(),
            word(&row.outcome),
            seconds(row.seconds),
        ]
    });
    println!("\n{}", table(&["step", "result", "time"], cells));
}
