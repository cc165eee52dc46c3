//! `cargo xtask features`: each feature alone on the oldest Rust that is promised, each example
//! alone, and the packages, built from each other.
//!
//! Everything else is built with all features at once, which hides a feature that lacks something
//! of its own.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde::Serialize;

use crate::table::{seconds, table};
use crate::workspace::Workspace;
use crate::{exec, packages};
use semel_devservers::time::Stopwatch;

#[derive(Debug, Serialize)]
struct Row {
    package: String,
    /// A feature; or what else was checked.
    what: String,
    seconds: f64,
}

/// Stops at the first that does not compile.
pub(crate) fn run(workspace: &Workspace, only_packages: bool) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .no_deps()
        .exec()?;
    promised_version(&metadata)?;
    let mut checks = Checks {
        workspace,
        rows: Vec::new(),
    };
    let all = metadata.packages.iter();
    let (published, others): (Vec<_>, Vec<_>) = all.partition(|package| is_published(package));
    if !only_packages {
        for package in others {
            if package.manifest_path.as_str().contains("/examples/") {
                let arguments = ["check", "--package", &package.name, "--all-targets"];
                checks.strictly(&package.name, "alone", exec::cargo().args(arguments))?;
            }
        }
        for package in &published {
            checks.features(package)?;
        }
    }
    checks.run("all", "packaged", &mut packages::make(&published))?;
    let mut build = packages::unpack(workspace, &published)?;
    checks.run("all", "built from the packages", &mut build)?;
    let cells = checks
        .rows
        .iter()
        .map(|row| [row.package.clone(), row.what.clone(), seconds(row.seconds)]);
    println!("{}", table(&["package", "checked", "time"], cells));
    workspace.write_result("features", &checks.rows)
}

struct Checks<'a> {
    workspace: &'a Workspace,
    rows: Vec<Row>,
}

impl Checks<'_> {
    fn features(&mut self, package: &Package) -> Result<()> {
        let alone = ["check", "--package", &package.name, "--no-default-features"];
        self.strictly(&package.name, "no feature", exec::cargo().args(alone))?;
        for feature in package.features.keys().filter(|name| *name != "default") {
            let mut command = exec::cargo();
            command.args(alone).args(["--features", feature]);
            self.strictly(&package.name, feature, &mut command)?;
        }
        Ok(())
    }

    /// What one feature alone leaves unused is a warning, and fails.
    fn strictly(&mut self, package: &str, what: &str, command: &mut Command) -> Result<()> {
        self.run(package, what, command.env("RUSTFLAGS", "-D warnings"))
    }

    fn run(&mut self, package: &str, what: &str, command: &mut Command) -> Result<()> {
        println!("=== {package}: {what}");
        let watch = Stopwatch::start();
        exec::run(command.current_dir(self.workspace.root()))?;
        self.rows.push(Row {
            package: package.to_owned(),
            what: what.to_owned(),
            seconds: watch.seconds(),
        });
        Ok(())
    }
}

/// Whether a registry may get it.
pub(crate) fn is_published(package: &Package) -> bool {
    package
        .publish
        .as_ref()
        .is_none_or(|registries| !registries.is_empty())
}

/// A check on a newer Rust says nothing about the oldest.
pub(crate) fn promised_version(metadata: &Metadata) -> Result<()> {
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
