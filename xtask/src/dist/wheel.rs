//! The Python wheel: `pip install semel-cli` puts the program on the `PATH` of an environment.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{Release, place};
use crate::exec;
use crate::services::{folder, for_python, install};

/// Writes `RECORD` and packs the folder.
const TOOLS: &str = "wheel==0.45.1\n";

/// The wheel.
pub(super) fn pack(release: &Release) -> Result<PathBuf> {
    let Release { version, glibc, .. } = release;
    let tree = release.empty("wheel")?;
    let program = format!("semel_cli-{version}.data/scripts/semel");
    place(&release.program, &tree.join(program), 0o755)?;
    let about = tree.join(format!("semel_cli-{version}.dist-info"));
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let to = about.join("licenses").join(licence);
        place(&release.root.join(licence), &to, 0o644)?;
    }
    std::fs::write(about.join("METADATA"), release.template("python/METADATA")?)?;
    let mut wheel = "Wheel-Version: 1.0\nGenerator: semel\nRoot-Is-Purelib: false\n".to_owned();
    for platform in platforms(glibc) {
        wheel += &format!("Tag: py3-none-{platform}\n");
    }
    std::fs::write(about.join("WHEEL"), wheel)?;
    let tools = folder(&release.root.join("target/dist-tools"), "wheel", TOOLS);
    install(&tools, |beside| for_python(beside, TOOLS))?;
    let mut command = Command::new(tools.join("bin/python"));
    command.args(["-m", "wheel", "pack", "--dest-dir"]);
    exec::capture(command.arg(&release.folder).arg(&tree))?;
    Ok(release.folder.join(name(release)))
}

/// `semel_cli-VERSION-py3-none-PLATFORMS.whl`.
pub(super) fn name(release: &Release) -> String {
    let platforms = platforms(&release.glibc).join(".");
    format!("semel_cli-{}-py3-none-{platforms}.whl", release.version)
}

/// The platforms that the program runs on, as Python names them, in order. glibc 2.17 has an older
/// name, too: the only one that pip before 20.3 knows.
fn platforms(glibc: &str) -> Vec<String> {
    let older = (glibc == "2_17").then(|| "manylinux2014_x86_64".to_owned());
    let name = format!("manylinux_{glibc}_x86_64");
    older.into_iter().chain([name]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_installers_know_the_platform_by_its_older_name() {
        let both = ["manylinux2014_x86_64", "manylinux_2_17_x86_64"];
        assert_eq!(platforms("2_17"), both);
        assert_eq!(platforms("2_36"), ["manylinux_2_36_x86_64"]);
    }
}
