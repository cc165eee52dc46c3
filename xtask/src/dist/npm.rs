//! The npm packages: `@semel/cli` starts the program of the package for the platform, which is an
//! optional dependency.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{Release, place};
use crate::exec;

/// The platform that is built here, as npm names it.
const PLATFORM: &str = "linux-x64";

/// Both tarballs.
pub(super) fn pack(release: &Release) -> Result<Vec<PathBuf>> {
    let platform = release.empty("npm-platform")?;
    place(&release.program, &platform.join("bin/semel"), 0o755)?;
    let about = release.template("npm/platform.json")?;
    std::fs::write(platform.join("package.json"), about)?;
    let cli = release.empty("npm-cli")?;
    std::fs::write(
        cli.join("package.json"),
        release.template("npm/package.json")?,
    )?;
    let launcher = release.root.join("deploy/packages/npm/bin/semel.js");
    place(&launcher, &cli.join("bin/semel.js"), 0o755)?;
    let readme = release.root.join("deploy/packages/npm/README.md");
    place(&readme, &cli.join("README.md"), 0o644)?;
    for tree in [&platform, &cli] {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            place(&release.root.join(licence), &tree.join(licence), 0o644)?;
        }
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"]);
        exec::capture(pack.arg(&release.folder).current_dir(tree))?;
    }
    let version = &release.version;
    Ok(vec![
        release
            .folder
            .join(format!("semel-cli-{PLATFORM}-{version}.tgz")),
        release.folder.join(format!("semel-cli-{version}.tgz")),
    ])
}
