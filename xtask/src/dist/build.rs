//! The portable program: linked by zig against an old glibc, so that it runs on distributions of many years.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::exec;
use crate::services::{folder, for_python, install};
use crate::workspace::Workspace;

/// The linker, and cargo's way to use it.
const TOOLS: &str = "ziglang==0.17.0\ncargo-zigbuild==0.24.0\n";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Rust's own standard library asks for this glibc; distributions have it since 2012.
const GLIBC: &str = "2.17";

/// Builds the program with the `dist` profile.
pub(super) fn portable(workspace: &Workspace) -> Result<PathBuf> {
    let tools = folder(&workspace.path("target/dist-tools"), "zig", TOOLS);
    install(&tools, |beside| {
        println!("installing the linker");
        for_python(beside, TOOLS)
    })?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![tools.join("bin")];
    folders.extend(std::env::split_paths(&path));
    let mut command = exec::cargo();
    command
        .env("PATH", std::env::join_paths(folders)?)
        .args(["zigbuild", "--locked", "--profile", "dist"])
        .args(["--package", "semel-cli", "--target"])
        .arg(format!("{TARGET}.{GLIBC}"));
    exec::run(command.current_dir(workspace.root()))?;
    let program = workspace.path(format!("target/{TARGET}/dist/semel"));
    let needs = oldest_glibc(&program)?;
    ensure!(
        version(&needs) <= version(GLIBC),
        "the program needs glibc {needs}, and {GLIBC} was asked for"
    );
    Ok(program)
}

/// The newest version of glibc's symbols that a program uses: the oldest glibc that it runs on. As in `2_17`.
pub(super) fn oldest_glibc(program: &Path) -> Result<String> {
    let symbols = exec::capture(Command::new("objdump").arg("-T").arg(program))
        .context("needs objdump (Debian: binutils)")?;
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        rest.get(..end.unwrap_or(rest.len()))
    });
    let newest = versions.max_by_key(|text| version(text));
    Ok(newest.unwrap_or(GLIBC).replace('.', "_"))
}

/// `2.17` or `2_17` as numbers.
fn version(text: &str) -> Vec<u32> {
    let parts = text.split(['.', '_']);
    parts.filter_map(|part| part.parse().ok()).collect()
}
