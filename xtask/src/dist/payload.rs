//! What packages for systems carry beside the program, laid out below `usr`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{Release, place};
use crate::exec;

/// Files of the repository, and where they go.
const FILES: [(&str, &str); 5] = [
    ("LICENSE-MIT", "share/doc/semel/LICENSE-MIT"),
    ("LICENSE-APACHE", "share/doc/semel/LICENSE-APACHE"),
    ("deploy/semel.toml", "share/doc/semel/semel.toml"),
    ("CHANGELOG.md", "share/doc/semel/CHANGELOG.md"),
    (
        "target/xtask/sbom.cdx.json",
        "share/doc/semel/sbom.cdx.json",
    ),
];

/// Where shells look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/semel"),
    ("zsh", "share/zsh/vendor-completions/_semel"),
    ("fish", "share/fish/vendor_completions.d/semel.fish"),
];

/// Makes the tree: `bin`, `share/man`, completions and documents.
pub(super) fn collect(release: &Release) -> Result<PathBuf> {
    let tree = release.empty("payload")?;
    place(&release.program, &tree.join("bin/semel"), 0o755)?;
    for (from, to) in FILES {
        place(&release.root.join(from), &tree.join(to), 0o644)?;
    }
    let pages = tree.join("share/man/man1");
    exec::capture(
        Command::new(&release.program)
            .args(["man", "--out"])
            .arg(&pages),
    )?;
    for (shell, to) in COMPLETIONS {
        let text = exec::capture(Command::new(&release.program).args(["completions", shell]))?;
        let to = tree.join(to);
        if let Some(above) = to.parent() {
            std::fs::create_dir_all(above)?;
        }
        std::fs::write(to, text)?;
    }
    Ok(tree)
}
