//! `cargo xtask deps`: which crates may depend on which.
//!
//! What the manifests say is not enough: a runtime usually arrives through somebody else's crate.
//! So the rules are checked on the whole resolved graph, with all features on.

mod graph;
mod rules;

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
    println!("{}", table(&["rule", "result", "because"], rows));
    workspace.write_result("deps", &findings)?;
    if !findings.is_empty() {
        bail!("{} forbidden dependency path(s), see above", findings.len());
    }
    Ok(())
}
