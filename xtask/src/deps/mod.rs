//! `cargo xtask deps`: checks the direction of dependencies, between crates and between files.
//!
//! A runtime usually arrives through a dependency of a dependency, so the rules for crates are
//! checked on the whole resolved graph, with all features on. The files of each crate must not
//! import each other in a circle.

mod circles;
mod graph;
mod imports;
mod names;
mod rules;
mod source;

use anyhow::{Result, bail};
use cargo_metadata::{CargoOpt, MetadataCommand};
use serde::Serialize;

use crate::table::table;
use crate::workspace::Workspace;
use graph::Graph;
use rules::RULES;

#[derive(Debug, Serialize)]
struct Finding {
    rule: &'static str,
    path: Vec<String>,
    why: &'static str,
}

/// Checks every rule and prints one row for each.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .exec()?;
    let graph = Graph::of(&metadata)?;
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for rule in RULES {
        let violations = graph.check(rule);
        let result = match violations.len() {
            0 => "kept".to_owned(),
            count => format!("broken {count} times"),
        };
        rows.push([rule.name.to_owned(), result, rule.why.to_owned()]);
        for violation in violations {
            println!("{}: {}", violation.rule, violation.path.join(" → "));
            let graph::Violation { rule, path, why } = violation;
            findings.push(Finding { rule, path, why });
        }
    }
    let circles = circles::check(workspace, &folders(&metadata, workspace))?;
    for circle in &circles {
        println!(
            "{}: {} import each other; move what they share into a module below them",
            circle.parent,
            circle.modules.join(", ")
        );
        for import in &circle.imports {
            println!("  {import}");
        }
    }
    rows.push([
        "no-import-circles".to_owned(),
        match circles.len() {
            0 => "kept".to_owned(),
            count => format!("broken {count} times"),
        },
        "files of a circle can only be read and tested together".to_owned(),
    ]);
    println!("{}", table(&["rule", "result", "because"], rows));
    workspace.write_result("deps", &(&findings, &circles))?;
    if !findings.is_empty() || !circles.is_empty() {
        bail!(
            "{} forbidden dependency path(s) and {} import circle(s), see above",
            findings.len(),
            circles.len()
        );
    }
    Ok(())
}

/// The folders of our packages, relative to the root.
fn folders(metadata: &cargo_metadata::Metadata, workspace: &Workspace) -> Vec<String> {
    let packages = metadata.workspace_packages();
    let folders = packages.iter().filter_map(|package| {
        let folder = package.manifest_path.parent()?;
        let folder = folder.as_std_path().strip_prefix(workspace.root()).ok()?;
        Some(folder.display().to_string())
    });
    folders.collect()
}
