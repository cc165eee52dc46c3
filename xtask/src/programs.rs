//! Builds and runs the programs of other crates.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use serde::Serialize;

use crate::exec;
use crate::table::{seconds, table};
use crate::workspace::Workspace;
use semel_devservers::time::Stopwatch;

/// The programs that checks start. All with one command, of the whole workspace and with what tests
/// depend on: built one by one, each would have other features of what they share, and that would
/// be compiled again for each and for the tests.
const PROGRAMS: [&str; 11] = [
    "--bin=semel",
    "--bin=semel-faults",
    "--bin=semel-vectors",
    "--example=apis",
    "--example=metrics",
    "--example=openapi",
    "--example=problems",
    "--example=store-errors",
    // The native modules of the packages for Python and Node; the other libraries are parts of the
    // programs.
    "--lib",
    "--workspace",
    "--all-features",
];

/// Chooses every test for nextest. Those that need servers are left out of a plain `cargo test`, as
/// whole targets (`test = false` in the manifest, named here by the glob) or one by one
/// (`#[ignore]`).
pub(crate) const EVERY_TEST: [&str; 7] = [
    "--run-ignored=all",
    "--workspace",
    "--all-features",
    "--lib",
    "--bins",
    "--examples",
    "--test=*",
];

/// Builds the programs that checks start.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let mut build = exec::cargo();
    build.args(["build", "--quiet"]).args(PROGRAMS);
    exec::run(build.current_dir(workspace.root()))
}

/// Set for a command that starts after the programs were built. It does not begin with `SEMEL_`:
/// the program refuses settings that it does not know. Asking cargo again would wait for the lock
/// that a build of something else may hold.
pub(crate) const BUILT: &str = "XTASK_PROGRAMS_BUILT";

/// A program of ours as the tests have it, built if need be: `semel`, `examples/apis`, or a library
/// by the name of its file.
pub(crate) fn debug(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    if std::env::var_os(BUILT).is_none() {
        build(workspace)?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| workspace.path("target"), Into::into);
    Ok(target.join("debug").join(name))
}

/// Explores the model; the program writes its own result file and table.
pub(crate) fn model(workspace: &Workspace, quick: bool) -> Result<()> {
    let mut command = exec::cargo();
    command.args([
        "run",
        "--release",
        "--package",
        "semel-testkit",
        "--features",
        "model",
    ]);
    command.args(["--bin", "semel-model", "--"]);
    if quick {
        command.arg("--quick");
    }
    command.arg("--json").arg(workspace.result_file("model")?);
    timed(workspace, "model", &mut command).map(drop)
}

/// Runs the tests that replace threads and locks by ones whose order is chosen.
///
/// They are another build of the same code, so they have a target folder of their own: the ordinary
/// one would be built anew each time the flag comes and goes.
pub(crate) fn shuttle(workspace: &Workspace) -> Result<()> {
    let mut command = exec::cargo();
    command.env("RUSTFLAGS", "--cfg semel_shuttle");
    command.args([
        "test",
        "--release",
        "--package",
        "semel-core",
        "--test",
        "shuttle",
    ]);
    command
        .arg("--target-dir")
        .arg(workspace.path("target/shuttle"));
    let run = timed(workspace, "shuttle", &mut command)?;
    workspace.write_result("shuttle", &run)
}

/// How a program ended well.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    name: &'static str,
    command: String,
    passed: bool,
    seconds: f64,
}

/// Runs in the root of the repository and prints the closing table; a failure is an error.
pub(crate) fn timed(
    workspace: &Workspace,
    name: &'static str,
    command: &mut Command,
) -> Result<Run> {
    let watch = Stopwatch::start();
    exec::run(command.current_dir(workspace.root()))?;
    let run = Run {
        name,
        command: exec::shown(command),
        passed: true,
        seconds: watch.seconds(),
    };
    let row = [name.to_owned(), "passed".to_owned(), seconds(run.seconds)];
    println!("{}", table(&["program", "result", "time"], [row]));
    Ok(run)
}
