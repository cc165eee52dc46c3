//! The packages that a registry gets: made, unpacked, and built from each other alone, so that one
//! that lacks a file fails.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Package;

use crate::exec;
use crate::house::published::FILES;
use crate::workspace::Workspace;

/// Where they are unpacked, below `target`.
const FOLDER: &str = "target/unpacked";

/// The command that makes the packages.
pub(crate) fn make(packages: &[&Package]) -> Command {
    let mut command = exec::cargo();
    command.args(["package", "--no-verify", "--allow-dirty"]);
    for package in packages {
        command.arg(format!("--package={}", package.name));
    }
    command
}

/// Unpacks the packages into a workspace of their own, and returns the command that builds it.
pub(crate) fn unpack(workspace: &Workspace, packages: &[&Package]) -> Result<Command> {
    let folder = workspace.path(FOLDER);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("cannot remove the packages of the last time")?;
    }
    std::fs::create_dir_all(&folder)?;
    for package in packages {
        let name = folder_name(package);
        let archive = workspace.path(format!("target/package/{name}.crate"));
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(&archive).arg("-C").arg(&folder);
        exec::run(&mut tar)?;
        let missing = missing(&folder.join(&name));
        ensure!(missing.is_empty(), "{name} lacks {}", missing.join(", "));
    }
    let root = std::fs::read_to_string(workspace.path("Cargo.toml"))?;
    let names: Vec<_> = packages
        .iter()
        .map(|package| (package.name.to_string(), folder_name(package)))
        .collect();
    std::fs::write(folder.join("Cargo.toml"), manifest(&root, &names)?)?;
    // The versions of the dependencies are those that everything else is checked with.
    std::fs::copy(workspace.path("Cargo.lock"), folder.join("Cargo.lock"))?;
    let mut command = exec::cargo();
    command
        .args(["check", "--workspace", "--all-features", "--target-dir"])
        .arg(workspace.path("target"))
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"));
    Ok(command)
}

fn folder_name(package: &Package) -> String {
    format!("{}-{}", package.name, package.version)
}

/// The files that a package should carry and does not.
fn missing(folder: &Path) -> Vec<&'static str> {
    let is_missing = |file: &&str| !folder.join(file).is_file();
    FILES.into_iter().filter(is_missing).collect()
}

/// A workspace of the packages, in which each takes the others from here and not from a registry.
/// The profiles are those of `root`, so that dependencies need not be built again.
fn manifest(root: &str, packages: &[(String, String)]) -> Result<String> {
    let root: toml::Table = root.parse().context("the root's manifest is not TOML")?;
    let mut text = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n\n");
    text.push_str("[patch.crates-io]\n");
    for (name, folder) in packages {
        writeln!(text, "{name} = {{ path = \"{folder}\" }}")?;
    }
    let profiles = root.get_key_value("profile");
    let profiles = profiles.map(|(name, value)| (name.clone(), value.clone()));
    let profiles: toml::Table = profiles.into_iter().collect();
    write!(text, "\n{}", toml::to_string(&profiles)?)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_takes_the_others_from_beside_it() {
        let root = "[workspace]\nmembers = []\n[profile.dev]\ndebug = false\n";
        let packages = [("a".to_owned(), "a-0.1.0".to_owned())];
        let text = manifest(root, &packages).expect("the manifest is sound");
        let read: toml::Table = text.parse().expect("what was written is TOML");
        let path = &read["patch"]["crates-io"]["a"]["path"];
        assert_eq!(path.as_str(), Some("a-0.1.0"));
        assert_eq!(read["profile"]["dev"]["debug"].as_bool(), Some(false));
        assert!(read["workspace"]["members"].is_array());
    }

    #[test]
    fn package_without_a_licence_is_found() {
        let folder = std::env::temp_dir().join(format!("xtask-packages-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        for file in ["LICENSE-MIT", "README.md"] {
            std::fs::write(folder.join(file), "x").expect("the folder is writable");
        }
        let found = missing(&folder);
        std::fs::remove_dir_all(&folder).expect("the folder is removable");
        assert_eq!(found, ["LICENSE-APACHE"]);
    }
}
