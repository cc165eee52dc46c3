//! `cargo xtask sbom`: a software bill of materials in CycloneDX format.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde_json::{Value, json};

use crate::workspace::Workspace;

/// The shipped program.
const PROGRAM: &str = "semel-cli";

/// Writes `target/xtask/sbom.cdx.json`: every package that the program is built from, with its
/// licence and the checksum of its source.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()?;
    let lock = std::fs::read_to_string(workspace.path("Cargo.lock"))?;
    let document = document(&metadata, &checksums(&lock))?;
    let count = document["components"].as_array().map_or(0, Vec::len);
    let file = workspace.path("target/xtask/sbom.cdx.json");
    std::fs::create_dir_all(workspace.path("target/xtask"))?;
    std::fs::write(&file, serde_json::to_string_pretty(&document)? + "\n")?;
    println!("{count} packages in {}", file.display());
    Ok(())
}

/// The checksums of a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.trim_matches([' ', '=', '"']).to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

fn document(metadata: &Metadata, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let root = metadata.packages.iter().find(|one| one.name == PROGRAM);
    let root = root.with_context(|| format!("there is no {PROGRAM}"))?;
    let edges = edges(metadata)?;
    let mut seen = BTreeSet::from([&root.id]);
    let mut next = vec![&root.id];
    while let Some(id) = next.pop() {
        for other in edges.get(id).into_iter().flatten() {
            if seen.insert(other) {
                next.push(other);
            }
        }
    }
    let of = |id: &PackageId| metadata.packages.iter().find(|package| package.id == *id);
    let others = seen.iter().filter(|id| ***id != root.id);
    let components: Vec<Value> = others
        .filter_map(|id| of(id))
        .map(|package| component(package, checksums))
        .collect();
    let dependencies: Vec<Value> = seen
        .iter()
        .filter_map(|id| {
            let on = edges.get(*id).into_iter().flatten();
            let on: Vec<String> = on.filter_map(|id| of(id)).map(purl).collect();
            Some(json!({"ref": purl(of(id)?), "dependsOn": on}))
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "name": "semel", "version": root.version.to_string(), "bom-ref": purl(root),
        }},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Which package is built from which others; what only tests use isn't among them.
fn edges(metadata: &Metadata) -> Result<BTreeMap<&PackageId, BTreeSet<&PackageId>>> {
    let resolve = metadata.resolve.as_ref().context("nothing is resolved")?;
    let mut edges = BTreeMap::new();
    for node in &resolve.nodes {
        let built = node.deps.iter().filter(|dependency| {
            let kinds = &dependency.dep_kinds;
            kinds
                .iter()
                .any(|kind| kind.kind != DependencyKind::Development)
        });
        edges.insert(&node.id, built.map(|dependency| &dependency.pkg).collect());
    }
    Ok(edges)
}

fn component(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": "library",
        "name": *package.name,
        "version": package.version.to_string(),
        "purl": purl(package),
        "bom-ref": purl(package),
    });
    if let Some(licence) = &package.license {
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    let key = (package.name.to_string(), package.version.to_string());
    if let Some(sum) = checksums.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_read_by_name_and_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
            [[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&("a".to_owned(), "1.0.0".to_owned())], "ff");
    }

    #[test]
    fn the_program_and_what_it_is_built_from_are_listed() {
        let workspace = Workspace::find().unwrap();
        let metadata = MetadataCommand::new()
            .manifest_path(workspace.path("Cargo.toml"))
            .exec()
            .unwrap();
        let lock = std::fs::read_to_string(workspace.path("Cargo.lock")).unwrap();
        let document = document(&metadata, &checksums(&lock)).unwrap();
        let components = document["components"].as_array().unwrap();
        let has = |name: &str| components.iter().any(|one| one["name"] == name);
        assert!(has("semel-core") && has("tokio") && has("rustls"));
        assert!(
            !has("semel-testkit") && !has("xtask"),
            "what tests use isn't shipped"
        );
        let outside = components.iter().filter(|one| one["hashes"].is_array());
        assert!(outside.count() > 100, "sources have checksums");
    }
}
