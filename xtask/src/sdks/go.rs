//! The Go module: gofmt, generated types, vet, tests with the race detector, and a program that
//! uses the module from elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Bench, python};
use crate::exec;
use crate::services::{folder, install};

const WANTED: &str = include_str!("../../../sdks/go/requirements-dev.txt");
const PACKAGE: &str = "go";
const USER: &str = "module example.com/user\n\ngo 1.26\n\n\
    require github.com/semel-rs/semel/sdks/go v0.0.0\n\n\
    replace github.com/semel-rs/semel/sdks/go => ../module\n";

pub(super) fn run(bench: &Bench) -> Result<()> {
    let toolchain = toolchain(&bench.folder)?;
    let mut gofmt = bench.command(toolchain.join("bin/gofmt"), PACKAGE);
    let unformatted = exec::capture(gofmt.args(["-l", "."]))?;
    ensure!(
        unformatted.is_empty(),
        "not as gofmt writes it: {unformatted}"
    );
    let go = |arguments: &[&str]| {
        let mut command = bench.command(toolchain.join("bin/go"), PACKAGE);
        exec::run(isolated(command.args(arguments), &bench.folder))
    };
    // Everything with the race detector: the standard library is compiled once.
    go(&["run", "-race", "./internal/generate", "-check"])?;
    go(&["vet", "-race", "./..."])?;
    go(&["test", "-race", "-count=1", "./..."])?;
    smoke(bench, &toolchain)
}

/// Writes the generated files.
pub(super) fn generate(tools: &Path, sources: &Path) -> Result<()> {
    let mut command = Command::new(toolchain(tools)?.join("bin/go"));
    command.args(["run", "./internal/generate"]);
    exec::run(isolated(command.current_dir(sources.join(PACKAGE)), tools))
}

/// Installs the toolchain, and compiles what every check needs.
pub(super) fn prepare(tools: &Path, sources: &Path) -> Result<()> {
    let mut command = Command::new(toolchain(tools)?.join("bin/go"));
    command.args(["build", "-race", "./..."]);
    exec::run(isolated(command.current_dir(sources.join(PACKAGE)), tools))
}

/// Takes nothing from the network or from the user's settings; keeps what it compiles.
fn isolated<'a>(command: &'a mut Command, tools: &Path) -> &'a mut Command {
    command
        .env("GOCACHE", tools.join("go-cache"))
        .env("GOPATH", tools.join("go-path"))
        .envs([
            ("GOENV", "off"),
            ("GOFLAGS", ""),
            ("GOPROXY", "off"),
            ("GOTOOLCHAIN", "local"),
            ("GOWORK", "off"),
            ("CGO_ENABLED", "1"),
        ])
}

/// Go's own folder, in an environment that is named by what is in it.
fn toolchain(tools: &Path) -> Result<PathBuf> {
    let environment = folder(tools, PACKAGE, WANTED);
    install(&environment, |beside| {
        println!("installing what the Go module is checked with");
        python::virtual_environment(beside)?;
        let list = beside.join("requirements.txt");
        std::fs::write(&list, WANTED)?;
        python::pip(beside, |command| {
            let strict = ["--require-hashes", "--no-deps", "--only-binary=:all:"];
            command.args(strict).arg("-r").arg(&list)
        })
    })?;
    let mut python = Command::new(environment.join("bin/python"));
    let found = exec::capture(python.args(["-c", "import go; print(go.__path__[0])"]))
        .context("the environment has no Go")?;
    Ok(PathBuf::from(found.trim()))
}

/// As its users get it: the sources without their tests, from a module of the user's own.
fn smoke(bench: &Bench, toolchain: &Path) -> Result<()> {
    let clean = bench.empty("clean-go")?;
    let source = bench.sources.join(PACKAGE);
    copy(&source, &clean.join("module"))?;
    let user = clean.join("user");
    std::fs::create_dir_all(&user)?;
    std::fs::write(user.join("go.mod"), USER)?;
    std::fs::copy(source.join("tools/smoke/main.go"), user.join("main.go"))?;
    let mut command = Command::new(toolchain.join("bin/go"));
    command.args(["run", "-race", "."]).arg(&bench.program);
    exec::run(isolated(command.current_dir(&user), &bench.folder))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = to.join(&*name);
        if path.is_dir() {
            copy(&path, &beside)?;
        } else if name == "go.mod" || (name.ends_with(".go") && !name.ends_with("_test.go")) {
            std::fs::copy(&path, beside)?;
        }
    }
    Ok(())
}
