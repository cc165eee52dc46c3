//! The TypeScript package: eslint, generated types, tsc, vitest, and the tarball in a clean folder.
//!
//! The native module is compiled with the programs of the tests, and laid beside the package: there
//! the tests and the tarball find it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Bench, only};
use crate::exec;

const LOCK: &str = include_str!("../../../sdks/typescript/package-lock.json");
const PACKAGE: &str = "typescript";

pub(super) fn run(bench: &Bench) -> Result<()> {
    install(&bench.sources)?;
    let npx = |arguments: &[&str]| {
        let mut command = bench.command("npx", PACKAGE);
        exec::run(command.arg("--no-install").args(arguments))
    };
    bench.place_module("semel_node", Path::new("typescript/semel.node"))?;
    npx(&["eslint", "."])?;
    exec::run(
        bench
            .command("node", PACKAGE)
            .args(["tools/generate.mjs", "--check"]),
    )?;
    npx(&["tsc", "-p", "tsconfig.json"])?;
    npx(&["vitest", "run"])?;
    npx(&["tsc", "-p", "tsconfig.build.json"])?;
    let built = bench.empty("tarball")?;
    let mut pack = bench.command("npm", PACKAGE);
    exec::capture(
        pack.args(["pack", "--silent", "--pack-destination"])
            .arg(&built),
    )?;
    smoke(bench, &only(&built, ".tgz")?)
}

/// Beside the package, where its tools look; a mark has the lock that it was made from.
pub(super) fn install(sources: &Path) -> Result<()> {
    let package = sources.join(PACKAGE);
    let mark = package.join("node_modules/.lock-of-semel");
    if std::fs::read_to_string(&mark).is_ok_and(|text| text == LOCK) {
        return Ok(());
    }
    let version = exec::capture(Command::new("node").arg("--version"))
        .context("needs Node with npm: install version 20.19 or newer")?;
    ensure!(
        is_enough(&version),
        "needs Node 20.19 or newer, this is {}",
        version.trim()
    );
    println!("installing what the TypeScript package is checked with");
    let mut npm = Command::new("npm");
    npm.current_dir(package);
    // Not `ci`: it refuses a lock without the builds for other systems, which tests don't need and
    // not every registry has. Versions and digests are those of the lock all the same.
    exec::capture(npm.args(["install", "--no-save", "--no-audit", "--no-fund"]))
        .context("cannot install the packages of package-lock.json")?;
    Ok(std::fs::write(mark, LOCK)?)
}

fn is_enough(version: &str) -> bool {
    let mut numbers = version.trim().trim_start_matches('v').split('.');
    let mut next = || numbers.next().and_then(|part| part.parse::<u32>().ok());
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= (20, 19))
}

/// As its users get it: nothing but the tarball and what it asks for.
fn smoke(bench: &Bench, tarball: &Path) -> Result<()> {
    let clean = bench.empty("clean-typescript")?;
    std::fs::write(clean.join("package.json"), "{\"type\": \"module\"}\n")?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]);
    exec::capture(npm.arg(tarball).current_dir(&clean))?;
    std::fs::copy(
        bench.sources.join("typescript/tools/smoke.mjs"),
        clean.join("smoke.mjs"),
    )?;
    let mut command = Command::new("node");
    exec::run(
        command
            .arg("smoke.mjs")
            .arg(&bench.program)
            .current_dir(&clean),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_is_refused() {
        assert!(is_enough("v20.19.0\n") && is_enough("v22.1.0"));
        assert!(!is_enough("v18.20.4") && !is_enough("v20.18.9") && !is_enough("no"));
    }
}
