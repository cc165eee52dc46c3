//! `cargo xtask simulate`: worlds of faults around the real engine, one for each seed.

use anyhow::Result;
use clap::Args;

use crate::exec;
use crate::programs::timed;
use crate::workspace::Workspace;

/// `cargo xtask simulate`.
#[derive(Args, Debug)]
pub(crate) struct Simulate {
    /// How many worlds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The seed of the first world; the same seed gives the same world.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Ends after so many minutes, whatever is left.
    #[arg(long)]
    minutes: Option<u64>,
    /// What nodes do with answers: `in-records`, `encrypted` or `apart`.
    #[arg(long, default_value = "in-records")]
    answers: String,
    /// A bug for the store to have: it should be found.
    #[arg(long)]
    bug: Option<String>,
}

/// Runs the simulation; the program writes its own result file and table.
pub(crate) fn run(workspace: &Workspace, simulate: &Simulate) -> Result<()> {
    let mut command = exec::cargo();
    command.args(["run", "--release", "--package", "semel-testkit"]);
    command.args(["--bin", "semel-simulate", "--"]);
    command.args(["--seeds", &simulate.seeds.to_string()]);
    command.args(["--from", &simulate.from.to_string()]);
    if let Some(minutes) = simulate.minutes {
        command.args(["--minutes", &minutes.to_string()]);
    }
    match &simulate.bug {
        Some(bug) => command.args(["--bug", bug]),
        None => command.args(["--answers", &simulate.answers]),
    };
    let file = workspace.result_file("simulate")?;
    command.arg("--json").arg(file);
    timed(workspace, "simulate", &mut command).map(drop)
}
