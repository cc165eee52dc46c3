//! The Python wheel: `pip install semel-cli` puts the program on the `PATH` of an environment.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{Release, place};
use crate::exec;
use crate::services::{folder, for_python, install};

/// Writes `RECORD` and packs the folder.
const TOOLS: &str = "wheel==0.45.1\n";

/// `semel_cli-VERSION-py3-none-manylinux_GLIBC_x86_64.whl`.
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
    let tag = format!("py3-none-manylinux_{glibc}_x86_64");
    let wheel =
        format!("Wheel-Version: 1.0\nGenerator: semel\nRoot-Is-Purelib: false\nTag: {tag}\n");
    std::fs::write(about.join("WHEEL"), wheel)?;
    let tools = folder(&release.root.join("target/dist-tools"), "wheel", TOOLS);
    install(&tools, |beside| for_python(beside, TOOLS))?;
    let mut command = Command::new(tools.join("bin/python"));
    command.args(["-m", "wheel", "pack", "--dest-dir"]);
    exec::capture(command.arg(&release.folder).arg(&tree))?;
    Ok(release
        .folder
        .join(format!("semel_cli-{version}-{tag}.whl")))
}
