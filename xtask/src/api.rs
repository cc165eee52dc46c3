//! `cargo xtask api`: the public API of each published crate as a list, kept in `spec/api`, so that
//! a change of it is seen in a review.
//!
//! The lists come from rustdoc's JSON, which only an unstable option writes. Its format belongs to
//! one version of Rust, the promised one.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::MetadataCommand;
use serde::Serialize;

use crate::exec;
use crate::features::{is_published, promised_version};
use crate::table::table;
use crate::workspace::Workspace;

/// Where the lists are kept.
const FOLDER: &str = "spec/api";

/// Options of rustdoc that make it write JSON.
const JSON: &str = "-Z unstable-options --output-format json --cap-lints allow";

/// Lets rustdoc, and nothing else of a build, use unstable options.
const WRAPPER: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

#[derive(Debug, Serialize)]
struct Row {
    package: String,
    items: usize,
    removed: usize,
    added: usize,
}

/// Writes the lists, or with `check` compares them with those that are kept.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .no_deps()
        .exec()?;
    promised_version(&metadata)?;
    let packages = metadata.packages.iter().filter(|p| is_published(p));
    let mut names: Vec<String> = packages.map(|package| package.name.to_string()).collect();
    names.sort();
    document(workspace, &names)?;
    let folder = workspace.path(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let mut rows = Vec::new();
    for name in &names {
        let json = workspace.path(format!("target/doc/{}.json", name.replace('-', "_")));
        let new = list(&json)?;
        let file = folder.join(format!("{name}.txt"));
        let old = std::fs::read_to_string(&file).unwrap_or_default();
        let difference = difference(&old, &new);
        // A list that is written for the first time is new as a whole.
        for line in difference.iter().filter(|_| check || !old.is_empty()) {
            println!("{name}: {line}");
        }
        let count = |sign| difference.iter().filter(|d| d.starts_with(sign)).count();
        rows.push(Row {
            package: name.clone(),
            items: new.lines().count(),
            removed: count('-'),
            added: count('+'),
        });
        if !check {
            std::fs::write(&file, new)?;
        }
    }
    let cells = rows.iter().map(|row| {
        let numbers = [row.items, row.removed, row.added].map(|number| number.to_string());
        let [items, removed, added] = numbers;
        [row.package.clone(), items, removed, added]
    });
    println!("{}", table(&["package", "items", "gone", "new"], cells));
    workspace.write_result("api", &rows)?;
    let is_changed = rows.iter().any(|row| row.removed + row.added > 0);
    if check && is_changed {
        bail!(
            "the public API has changed; if that is meant, run `cargo xtask api` and commit {FOLDER}"
        );
    }
    Ok(())
}

/// Lets rustdoc describe all packages as JSON, in one build.
fn document(workspace: &Workspace, names: &[String]) -> Result<()> {
    let wrapper = write_wrapper(workspace)?;
    let mut command = exec::cargo();
    command.args(["doc", "--no-deps", "--all-features", "--quiet"]);
    for name in names {
        command.arg(format!("--package={name}"));
    }
    command.env("RUSTDOC", wrapper).env("RUSTDOCFLAGS", JSON);
    exec::run(command.current_dir(workspace.root()))
}

fn write_wrapper(workspace: &Workspace) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let file = workspace.path("target/xtask/rustdoc.sh");
    std::fs::create_dir_all(workspace.path("target/xtask"))?;
    std::fs::write(&file, WRAPPER)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

/// The items of a crate, one in a line. Derived, automatic and blanket implementations follow from
/// what is listed.
fn list(json: &Path) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build()
        .with_context(|| format!("cannot read {}", json.display()))?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// The lines that are gone, with `-`, and those that are new, with `+`.
fn difference(old: &str, new: &str) -> Vec<String> {
    let lacks = |text: &str, line: &str| !text.lines().any(|other| other == line);
    let gone = old.lines().filter(|line| lacks(new, line));
    let more = new.lines().filter(|line| lacks(old, line));
    let gone = gone.map(|line| format!("- {line}"));
    gone.chain(more.map(|line| format!("+ {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_by_line() {
        let (old, new) = ("pub mod a\npub fn a::b()\n", "pub mod a\npub fn a::b(u8)\n");
        assert_eq!(difference(old, old), Vec::<String>::new());
        assert_eq!(
            difference(old, new),
            ["- pub fn a::b()", "+ pub fn a::b(u8)"]
        );
    }
}
