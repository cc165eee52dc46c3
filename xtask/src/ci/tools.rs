//! Tools that checks use, installed where they are missing.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::exec;
use crate::workspace::Workspace;

/// The version that reads today's advisories.
const DENY: &str = "0.20.2";

/// Installs what is missing.
pub(super) fn install(workspace: &Workspace) -> Result<()> {
    installed(workspace).map(drop)
}

/// Runs cargo-deny in the root of the repository.
pub(super) fn deny(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    exec::run(deny_command(workspace)?.args(arguments))
}

/// cargo-deny, to be given its arguments.
pub(super) fn deny_command(workspace: &Workspace) -> Result<Command> {
    let mut command = Command::new(installed(workspace)?);
    command.arg("deny").current_dir(workspace.root());
    Ok(command)
}

fn installed(workspace: &Workspace) -> Result<PathBuf> {
    let is_right = |text: String| text.trim().ends_with(DENY);
    if let Some(found) = exec::find_program("cargo-deny") {
        let version = exec::capture(Command::new(&found).args(["deny", "--version"]));
        if version.is_ok_and(is_right) {
            return Ok(found);
        }
    }
    let own = workspace.path(format!("target/tools/cargo-deny-{DENY}"));
    let program = own.join("bin/cargo-deny");
    if program.is_file() {
        return Ok(program);
    }
    // Not optimised: building it takes four times as long otherwise, and its checks take seconds
    // either way.
    let mut install = exec::cargo();
    install.args(["install", "--locked", "--root"]).arg(&own);
    install.arg(format!("cargo-deny@{DENY}"));
    for (name, value) in [
        ("OPT_LEVEL", "0"),
        ("DEBUG", "0"),
        ("LTO", "off"),
        ("CODEGEN_UNITS", "16"),
    ] {
        install.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
    exec::run(install.current_dir(workspace.root())).context("cannot install cargo-deny")?;
    Ok(program)
}
