//! What tests with several processes share: the built `semel`, and what the guides say.

pub mod pages;

/// The README's Rust, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program `semel`, built from this tree as it stands.
///
/// # Panics
/// Where it can't be built.
#[must_use]
pub fn semel() -> PathBuf {
    program("semel")
}

/// A program of the workspace, built from this tree as it stands. Cargo has nothing to do where it
/// is up to date, and lets tests that ask at the same time wait for each other.
///
/// # Panics
/// Where it can't be built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    // With an example beside it, and so with the features that tests of the whole workspace have:
    // what those have compiled is not compiled again.
    build.args([
        "build",
        "--workspace",
        "--all-features",
        "--bin",
        name,
        "--example=openapi",
        "--message-format=json-render-diagnostics",
    ]);
    // Built as the test is: a long run by hand is `--release`, and should not wait for a slow copy.
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    // What cargo says of the test's own package would look like a change to build scripts, which
    // then run again.
    let own = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ];
    for (name, _) in std::env::vars() {
        if own.iter().any(|prefix| name.starts_with(prefix)) {
            build.env_remove(name);
        }
    }
    build
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::piped());
    let output = build.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} can't be built:\n{errors}");
    let said = String::from_utf8_lossy(&output.stdout);
    let built = said
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    built.expect("cargo says where it put the program")
}

/// A command that runs `semel` with nothing of this environment's settings.
#[must_use]
pub fn semel_command(program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
