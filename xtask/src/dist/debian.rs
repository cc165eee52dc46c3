//! The Debian package: the payload below `/usr`, the systemd unit, and the settings as a
//! configuration file.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Release, place};
use crate::exec;

/// `semel_VERSION_amd64.deb`.
pub(super) fn package(release: &Release, payload: &Path) -> Result<PathBuf> {
    let tree = release.empty("debian")?;
    let mut copy = Command::new("cp");
    copy.arg("--archive").arg(payload).arg(tree.join("usr"));
    exec::capture(&mut copy)?;
    let unit = std::fs::read_to_string(release.root.join("deploy/semel.service"))?;
    let units = tree.join("usr/lib/systemd/system");
    std::fs::create_dir_all(&units)?;
    // Programs of packages live in /usr/bin; what an administrator installs by hand is in
    // /usr/local/bin.
    std::fs::write(
        units.join("semel.service"),
        unit.replace("/usr/local/bin/semel", "/usr/bin/semel"),
    )?;
    let settings = release.root.join("deploy/semel.toml");
    place(&settings, &tree.join("etc/semel/semel.toml"), 0o644)?;
    let control = tree.join("DEBIAN");
    std::fs::create_dir_all(&control)?;
    let glibc = release.glibc.replace('_', ".");
    let text = release.template("debian/control")?;
    std::fs::write(control.join("control"), text.replace("{{glibc}}", &glibc))?;
    std::fs::write(control.join("conffiles"), "/etc/semel/semel.toml\n")?;
    let file = format!("semel_{}_amd64.deb", release.version);
    let file = release.folder.join(file);
    let mut build = Command::new("dpkg-deb");
    build.arg(format!("-z{}", release.level));
    build.args(["--root-owner-group", "-Zxz", "--build"]);
    exec::capture(build.arg(&tree).arg(&file)).context("needs dpkg-deb")?;
    Ok(file)
}
