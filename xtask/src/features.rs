//! `cargo xtask features`: each feature alone on the oldest Rust that is promised, each example
//! alone, and the packages.
//!
//! Everything else is built with all features at once, which hides a feature that lacks something
//! of its own.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde::Serialize;

use crate::exec;
use crate::table::{seconds, table};
use crate::time::Stopwatch;
use crate::workspace::Workspace;

#[derive(Debug, Serialize)]
struct Row {
    package: String,
    /// A feature; or what else was checked.
    what: String,
    seconds: f64,
}

/// Stops at the first that does not compile.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .no_deps()
        .exec()?;
    promised_version(&metadata)?;
    let mut rows = Vec::new();
    let mut check = |package: &str, what: String, command: &mut Command| -> Result<()> {
        println!("=== {package}: {what}");
        let watch = Stopwatch::start();
        // What one feature alone leaves unused is a warning.
        command.env("RUSTFLAGS", "-D warnings");
        exec::run(command.current_dir(workspace.root()))?;
        rows.push(Row {
            package: package.to_owned(),
            what,
            seconds: watch.seconds(),
        });
        Ok(())
    };
    let mut published = Vec::new();
    for package in &metadata.packages {
        if !is_published(package) {
            if package.manifest_path.as_str().contains("/examples/") {
                let arguments = ["check", "--package", &package.name, "--all-targets"];
                check(
                    &package.name,
                    "alone".to_owned(),
                    exec::cargo().args(arguments),
                )?;
            }
            continue;
        }
        published.push(format!("--package={}", package.name));
        let alone = ["check", "--package", &package.name, "--no-default-features"];
        check(
            &package.name,
            "no feature".to_owned(),
            exec::cargo().args(alone),
        )?;
        for feature in package.features.keys().filter(|name| *name != "default") {
            let mut command = exec::cargo();
            command.args(alone).args(["--features", feature]);
            check(&package.name, feature.clone(), &mut command)?;
        }
    }
    let mut command = exec::cargo();
    command
        .args(["package", "--no-verify", "--allow-dirty"])
        .args(&published);
    check("all", "packaged".to_owned(), &mut command)?;
    let cells = rows
        .iter()
        .map(|row| [row.package.clone(), row.what.clone(), seconds(row.seconds)]);
    println!("{}", table(&["package", "checked", "time"], cells));
    workspace.write_result("features", &rows)
}

/// Whether a registry may get it.
fn is_published(package: &Package) -> bool {
    package
        .publish
        .as_ref()
        .is_none_or(|registries| !registries.is_empty())
}

/// A check on a newer Rust says nothing about the oldest.
fn promised_version(metadata: &Metadata) -> Result<()> {
    let promised = metadata
        .packages
        .iter()
        .find_map(|package| package.rust_version.clone());
    let promised = promised.context("no package names its oldest Rust")?;
    let told = exec::capture(Command::new("rustc").arg("--version"))?;
    let running = told.split_whitespace().nth(1).unwrap_or_default();
    ensure!(
        running.starts_with(&format!("{}.{}.", promised.major, promised.minor)),
        "Rust {promised} is promised and this is {running}; \
         `rustup run {promised} cargo xtask features` checks the one that is promised"
    );
    Ok(())
}
