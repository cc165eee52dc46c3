//! `cargo xtask faults`: real processes on real stores while everything fails; or one store held to
//! the reference.

use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::Workspace;
use crate::{exec, programs, services};

/// What to run.
#[derive(Args, Debug)]
pub(crate) struct Faults {
    /// Instead: random sequences on the memory store, each answer compared with the reference.
    #[arg(long)]
    soak: bool,
    /// How many sequences to run, with `--soak`.
    #[arg(long, default_value_t = 10_000_000)]
    sequences: u64,
    /// The stores, with commas between them; or `all`.
    #[arg(long, default_value = "all")]
    store: String,
    /// How long each store is run.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of what strikes the store and the ways to it, only these, with commas between them.
    #[arg(long)]
    only: Option<String>,
    /// Instead: lets the checker find a seeded bug, or `all`.
    #[arg(long)]
    bug: Option<String>,
    /// How many short runs a bug may take.
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// Instead: runs another design, which has to fail: `unconditional`, `axum-idempotent`.
    #[arg(long)]
    peer: Option<String>,
}

/// A published peer, whose dependencies are kept out of ours.
const PUBLISHED: &str = "axum-idempotent";

/// Runs the program that was asked for; it writes its own result file.
pub(crate) fn run(workspace: &Workspace, faults: &Faults) -> Result<()> {
    if faults.soak {
        return soak(workspace, faults);
    }
    let (name, seed) = match (&faults.bug, &faults.peer) {
        (Some(_), Some(_)) => bail!("--bug or --peer, not both"),
        (Some(_), None) => ("faults-bugs", faults.seed),
        (None, Some(_)) => ("faults-peer", faults.seed),
        (None, None) => ("faults", faults.seed),
    };
    let mut command = exec::cargo();
    command.args(["run", "--release"]);
    if faults.peer.as_deref() == Some(PUBLISHED) {
        command.args(["--manifest-path", "bench/peers/Cargo.toml", "--", "faults"]);
        command.args(["--seed", &seed.to_string()]);
        command.arg("--json").arg(workspace.result_file(name)?);
        return programs::timed(workspace, "faults", &mut command).map(drop);
    }
    command.args(["--package", "semel-faults", "--", "--store", &faults.store]);
    command.args([
        "--seconds",
        &faults.seconds.to_string(),
        "--seed",
        &seed.to_string(),
    ]);
    if let Some(only) = &faults.only {
        command.args(["--only", only]);
    }
    if let Some(bug) = &faults.bug {
        command.args(["--bug", bug, "--runs", &faults.runs.to_string()]);
    }
    if let Some(peer) = &faults.peer {
        command.args(["--peer", peer]);
    }
    if name == "faults" {
        // The stores are private ones; what has to be installed, these bring.
        let needed = ["redis", "valkey", "postgres", "mariadb", "s3", "faketime"];
        let names = needed.map(str::to_owned).into();
        services::run(workspace, &services::Action::Up { names })?;
        command.envs(services::variables(workspace)?);
    }
    command.arg("--json").arg(workspace.result_file(name)?);
    programs::timed(workspace, "faults", &mut command).map(drop)
}

/// What every change has to pass: some stores for a short time, and every seeded bug found.
pub(crate) fn slice(workspace: &Workspace) -> Result<()> {
    let program = |arguments: &[&str], name: &str| -> Result<()> {
        let mut command = Command::new(programs::debug(workspace, "semel-faults")?);
        command
            .args(arguments)
            .envs(services::variables(workspace)?);
        command.arg("--json").arg(workspace.result_file(name)?);
        programs::timed(workspace, "faults", &mut command).map(drop)
    };
    program(&["--bug", "all", "--runs", "100"], "faults-bugs")?;
    program(
        &["--peer", "unconditional", "--seconds", "16"],
        "faults-peer",
    )?;
    let stores = "memory,redis,postgres,sqlite";
    program(&["--store", stores, "--seconds", "25"], "faults")
}

fn soak(workspace: &Workspace, faults: &Faults) -> Result<()> {
    let mut command = exec::cargo();
    command.args([
        "run",
        "--release",
        "--package",
        "semel-testkit",
        "--bin",
        "semel-soak",
        "--",
    ]);
    command.args(["--sequences", &faults.sequences.to_string()]);
    command.args(["--seed", &faults.seed.to_string()]);
    command.arg("--json").arg(workspace.result_file("soak")?);
    programs::timed(workspace, "soak", &mut command).map(drop)
}
