//! The tarball, the installer script that downloads it, and the checksums of everything.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Release, place};
use crate::exec;

/// The tarball's name without its ending.
pub(super) fn name(release: &Release) -> String {
    format!("semel-{}-x86_64-linux", release.version)
}

/// `semel-VERSION-x86_64-linux.tar.gz`, with one folder of that name in it. The same files give the
/// same bytes.
pub(super) fn tarball(release: &Release, payload: &Path) -> Result<PathBuf> {
    let name = name(release);
    let file = release.folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0"]);
    tar.arg("--numeric-owner");
    tar.arg(format!("--use-compress-program=gzip -{} -n", release.level));
    tar.arg(format!("--transform=s,^\\.,{name},"));
    tar.arg("--create").arg("--file").arg(&file);
    exec::capture(tar.arg("--directory").arg(payload).arg("."))?;
    Ok(file)
}

/// `install.sh`.
pub(super) fn installer(release: &Release) -> Result<PathBuf> {
    let file = release.folder.join("install.sh");
    std::fs::write(&file, release.template("install.sh")?)?;
    Ok(file)
}

/// The list of what the program is made of.
pub(super) fn materials(release: &Release) -> Result<PathBuf> {
    let to = format!("semel-{}.cdx.json", release.version);
    let to = release.folder.join(to);
    place(&release.root.join("target/xtask/sbom.cdx.json"), &to, 0o644)?;
    Ok(to)
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
pub(super) fn checksums(release: &Release, files: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("sha256sum");
    for file in files {
        command.arg(file.file_name().context("a package without a name")?);
    }
    let sums = exec::capture(command.current_dir(&release.folder))?;
    Ok(std::fs::write(release.folder.join("SHA256SUMS"), sums)?)
}
