//! The Python package: ruff, generated types, mypy, pytest, and the wheel in a clean environment.
//!
//! The native module is compiled with the programs of the tests, and laid beside the package: there
//! the tests and the wheel find it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Bench, only};
use crate::exec;
use crate::services::{folder, install};

const WANTED: &str = include_str!("../../../sdks/python/requirements-dev.txt");
const PACKAGE: &str = "python";

pub(super) fn run(bench: &Bench) -> Result<()> {
    let environment = environment(&bench.folder)?;
    let tool = |name: &str| environment.join("bin").join(name);
    let caches = bench.folder.join("caches");
    let ruff = |arguments: &[&str]| {
        let mut command = bench.command(tool("ruff"), PACKAGE);
        exec::run(command.args(arguments).arg("--no-cache"))
    };
    ruff(&["check", "."])?;
    ruff(&["format", "--check", "--quiet", "."])?;
    place_module(bench)?;
    let python = || {
        let mut command = bench.command(tool("python"), PACKAGE);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    exec::run(python().args(["tools/generate.py", "--check"]))?;
    exec::run(python().args(["-m", "mypy", "--cache-dir"]).arg(&caches))?;
    // As in the other tests, one second try; `-r R` names every test that needed it.
    let tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider"];
    exec::run(python().args(tests).args(["--reruns", "1", "-r", "R"]))?;
    let built = bench.empty("wheel")?;
    let mut build = python();
    build.args(["-m", "build", "--wheel", "--no-isolation", "--outdir"]);
    exec::capture(build.arg(&built))?;
    smoke(bench, &only(&built, ".whl")?)
}

/// Lays the native module beside the package, under the name by which Python finds it.
fn place_module(bench: &Bench) -> Result<()> {
    let name = if cfg!(windows) {
        "_native.pyd"
    } else {
        "_native.abi3.so"
    };
    bench.place_module("semel_python", &Path::new("python/src/semel").join(name))
}

/// The tools, in an environment that is named by what is in it.
pub(super) fn environment(tools: &Path) -> Result<PathBuf> {
    let environment = folder(tools, "python", WANTED);
    install(&environment, |beside| {
        println!("installing what the Python package is checked with");
        virtual_environment(beside)?;
        let list = beside.join("requirements.txt");
        std::fs::write(&list, WANTED)?;
        pip(beside, |command| command.arg("-r").arg(&list))
    })?;
    Ok(environment)
}

pub(super) fn virtual_environment(at: &Path) -> Result<()> {
    let mut venv = Command::new("python3");
    exec::capture(venv.args(["-m", "venv"]).arg(at))
        .context("needs Python with its venv module (Debian: python3-venv)")
        .map(drop)
}

pub(super) fn pip(
    environment: &Path,
    more: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<()> {
    let mut command = Command::new(environment.join("bin/python"));
    command.args(["-m", "pip", "--disable-pip-version-check", "install"]);
    exec::capture(more(command.arg("--quiet"))).map(drop)
}

/// As its users get it: nothing but the wheel and what it asks for.
fn smoke(bench: &Bench, wheel: &Path) -> Result<()> {
    let clean = bench.empty("clean-python")?;
    virtual_environment(&clean)?;
    pip(&clean, |command| command.arg(wheel))?;
    let mut command = Command::new(clean.join("bin/python"));
    command.arg("-I");
    command.arg(bench.sources.join("python/tools/smoke.py"));
    exec::run(command.arg(&bench.program).current_dir(&clean))
}
