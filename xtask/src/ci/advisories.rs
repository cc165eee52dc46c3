//! Known vulnerabilities in what we depend on: cargo-deny with the RustSec database.
//!
//! Where the database can't be fetched, a git bundle of it is used instead. Without either nothing
//! was checked; that fails under `CI=true`, and is said anywhere else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::tools;
use crate::exec;
use crate::workspace::Workspace;

/// Where cargo-deny fetches the database from.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Names a git bundle of the database.
const BUNDLE: &str = "SEMEL_ADVISORY_BUNDLE";

/// Where a bundle is looked for otherwise: in a folder beside the clone.
const BESIDE: &str = "../shared/advisory-db.bundle";

/// A crate with an advisory that stays (RUSTSEC-2020-0071: a segmentation fault).
const SEEDED: &str = r#"[workspace]
[package]
name = "seeded-advisory"
version = "0.0.0"
edition = "2021"
[dependencies]
time = "=0.1.45"
"#;

/// How long the database may take to arrive.
const FETCH_LIMIT: Duration = Duration::from_secs(30);

/// The workspaces beside ours, each with its own lock file. What they depend on runs on developers'
/// machines.
const OTHERS: [&str; 2] = ["fuzz", "bench/peers"];

/// The rules for them: what peers depend on may be unmaintained, as long as it is not vulnerable.
const OTHERS_RULES: &str = r#"[graph]
all-features = true
[advisories]
unmaintained = "workspace"
"#;

/// Checks the lock files of this repository.
pub(super) fn run(workspace: &Workspace) -> Result<()> {
    let source = match prepare(workspace) {
        Ok(source) => source,
        Err(error) if std::env::var_os("CI").is_some_and(|value| value == "true") => {
            return Err(error.context("the advisories were not checked"));
        }
        Err(error) => {
            println!("advisories: NOT CHECKED: {error:#}");
            return Ok(());
        }
    };
    let check = |rules: Option<&Path>| -> Result<Command> {
        let mut command = tools::deny_command(workspace)?;
        command.arg("--offline");
        if let Some(rules) = rules {
            command.arg("--config").arg(rules);
        }
        source.apply(command.args(["check", "advisories"]));
        Ok(command)
    };
    finds_a_seeded_one(workspace, check(None)?)?;
    exec::run(&mut check(None)?)?;
    let rules = workspace.path("target/tools/deny-others.toml");
    std::fs::write(&rules, OTHERS_RULES)?;
    for other in OTHERS {
        let folder = workspace.path(other);
        exec::capture(
            exec::cargo()
                .args(["fetch", "--quiet"])
                .current_dir(&folder),
        )?;
        println!("advisories: {other}");
        exec::run(check(Some(&rules))?.current_dir(&folder))?;
    }
    Ok(())
}

/// A check that finds nothing proves something only if it can find something.
fn finds_a_seeded_one(workspace: &Workspace, mut check: Command) -> Result<()> {
    let folder = workspace.path("target/tools/seeded-advisory");
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join("Cargo.toml"), SEEDED)?;
    std::fs::write(folder.join("src/lib.rs"), "")?;
    std::fs::copy(workspace.path("deny.toml"), folder.join("deny.toml"))?;
    let mut lock = exec::cargo();
    exec::capture(lock.args(["fetch", "--quiet"]).current_dir(&folder))?;
    match exec::capture(check.current_dir(&folder)) {
        Err(error) if format!("{error:#}").contains("time v0.1.45") => {
            println!("advisories: the seeded one was found");
            Ok(())
        }
        Err(error) => Err(error.context("the check of a seeded advisory could not be done")),
        Ok(_) => bail!("a seeded advisory was not found, so the check proves nothing"),
    }
}

/// Where the database comes from.
enum Source {
    Fetched,
    /// A clone of the bundle; git is told to read it in place of the address.
    Clone(PathBuf),
}

impl Source {
    fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let Self::Clone(clone) = self else {
            return command;
        };
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env(
                "GIT_CONFIG_KEY_0",
                format!("url.{}.insteadOf", clone.display()),
            )
            .env("GIT_CONFIG_VALUE_0", DATABASE)
    }
}

/// Brings the database to where cargo-deny looks for it.
fn prepare(workspace: &Workspace) -> Result<Source> {
    let fetch = |source: Source| -> Result<Source> {
        let mut command = tools::deny_command(workspace)?;
        exec::capture_within(source.apply(command.args(["fetch", "db"])), FETCH_LIMIT)?;
        Ok(source)
    };
    let Err(unreachable) = fetch(Source::Fetched) else {
        return Ok(Source::Fetched);
    };
    let bundle = std::env::var_os(BUNDLE).map_or_else(|| workspace.path(BESIDE), PathBuf::from);
    if !bundle.is_file() {
        bail!(
            "the database can't be fetched ({unreachable:#}), and {BUNDLE} names no bundle of it"
        );
    }
    let clone = workspace.path("target/tools/advisory-db");
    unpack(&bundle, &clone)?;
    println!(
        "advisories: from {}, of {}",
        bundle.display(),
        date_of(&clone)?
    );
    fetch(Source::Clone(clone))
}

fn unpack(bundle: &Path, clone: &Path) -> Result<()> {
    if clone.exists() {
        std::fs::remove_dir_all(clone)?;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--branch", "main"])
        .arg(bundle)
        .arg(clone);
    exec::capture(&mut git)
        .with_context(|| format!("cannot unpack {}", bundle.display()))
        .map(drop)
}

fn date_of(clone: &Path) -> Result<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(clone).args(["log", "-1", "--format=%cs"]);
    Ok(exec::capture(&mut git)?.trim().to_owned())
}
