//! Import circles between the files of a crate, found as strongly connected components.
//!
//! The rule holds at every level: modules beside each other, each with all that is below it, must
//! not import in a circle. A module and the modules below it are one thing in several files, so
//! imports between a file and those above it are free.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::Serialize;

use super::imports::{self, Import};
use crate::workspace::Workspace;

/// Modules that can only be read together, because each reaches every other by its imports.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Circle {
    /// The package and the module that holds them.
    pub(super) parent: String,
    pub(super) modules: Vec<String>,
    /// The imports within the circle, each with the first place.
    pub(super) imports: Vec<String>,
}

/// The imports between modules beside each other, each with its first place.
type Level = BTreeMap<(String, String), String>;

/// Checks every package of the workspace that has a folder `src`.
pub(super) fn check(workspace: &Workspace, folders: &[String]) -> Result<Vec<Circle>> {
    let mut found = Vec::new();
    for folder in folders {
        let imports = imports::read(&workspace.path(folder).join("src"))?;
        found.extend(find(folder, &imports));
    }
    Ok(found)
}

fn find(package: &str, imports: &[Import]) -> Vec<Circle> {
    let mut circles = Vec::new();
    for (parent, level) in levels(imports) {
        for component in components(&level) {
            let within = level
                .iter()
                .filter(|((from, to), _)| component.contains(from) && component.contains(to));
            circles.push(Circle {
                parent: format!("{package}/src/{}", parent.join("/")),
                imports: within
                    .map(|((_, to), place)| format!("{place} → {to}"))
                    .collect(),
                modules: component.into_iter().collect(),
            });
        }
    }
    circles
}

/// The imports by the module that holds both sides, between its direct children.
fn levels(imports: &[Import]) -> BTreeMap<&[String], Level> {
    let mut levels: BTreeMap<&[String], Level> = BTreeMap::new();
    for Import { from, to, place } in imports {
        let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if let (Some(a), Some(b)) = (from.get(same), to.get(same)) {
            let level = levels.entry(&from[..same]).or_default();
            let edge = (a.clone(), b.clone());
            level.entry(edge).or_insert_with(|| place.clone());
        }
    }
    levels
}

/// The strongly connected components with more than one module: modules that reach each other.
fn components(level: &Level) -> BTreeSet<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in level.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reach = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.to_owned()];
        while let Some(module) = open.pop() {
            for to in next.get(module.as_str()).into_iter().flatten() {
                if seen.insert((*to).to_owned()) {
                    open.push((*to).to_owned());
                }
            }
        }
        seen
    };
    let reachable: BTreeMap<&str, BTreeSet<String>> =
        next.keys().map(|module| (*module, reach(module))).collect();
    let mut components = BTreeSet::new();
    for (module, reached) in &reachable {
        let mutual = reached.iter().filter(|other| {
            let back = reachable.get(other.as_str());
            back.is_some_and(|back| back.contains(*module))
        });
        let component: BTreeSet<String> = mutual.cloned().collect();
        if component.len() > 1 {
            components.insert(component);
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(edges: &[(&str, &str)]) -> Vec<Circle> {
        let module = |path: &str| -> Vec<String> { path.split('/').map(str::to_owned).collect() };
        let import = |&(from, to): &(&str, &str)| Import {
            from: module(from),
            to: module(to),
            place: format!("{from}.rs:1"),
        };
        find("x", &edges.iter().map(import).collect::<Vec<_>>())
    }

    #[test]
    fn circle_is_found_with_its_imports() {
        let found = circles(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].modules, ["a", "b", "c"]);
        assert_eq!(found[0].imports, ["a.rs:1 → b", "b.rs:1 → c", "c.rs:1 → a"]);
    }

    #[test]
    fn imports_in_one_direction_are_no_circle() {
        assert_eq!(circles(&[("a", "b"), ("a", "c"), ("b", "c")]), []);
    }

    #[test]
    fn module_and_those_below_it_are_no_circle() {
        assert_eq!(circles(&[("a/b", "a"), ("a", "a/b"), ("a/b/c", "a")]), []);
    }

    #[test]
    fn folders_are_a_circle_even_where_no_two_files_are() {
        let found = circles(&[("a/x", "b/x"), ("b/y", "a/y")]);
        assert_eq!(found[0].parent, "x/src/");
        assert_eq!(found[0].modules, ["a", "b"]);
    }

    #[test]
    fn seeded_circle_deep_in_a_folder_is_found_by_file_and_line() {
        let root = std::env::temp_dir().join(format!("xtask-circles-{}", std::process::id()));
        let folder = root.join("x/src");
        std::fs::create_dir_all(folder.join("b")).expect("the folder is writable");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("the folder is writable");
        };
        write("lib.rs", "mod a;\nmod b;\npub use a::Thing;\n");
        write(
            "a.rs",
            "pub struct Thing;\n#[cfg(test)]\nuse crate::b::Part;\n// crate::b::Part\n",
        );
        write("b/mod.rs", "mod part;\nmod whole;\npub use part::Part;\n");
        write(
            "b/part.rs",
            "use super::whole::{\n    Whole,\n};\npub struct Part;\n",
        );
        write(
            "b/whole.rs",
            "use crate::{\n    Thing,\n    b::Part,\n};\npub struct Whole;\n",
        );
        let found = check(&Workspace::at(&root), &["x".to_owned()]);
        std::fs::remove_dir_all(&root).expect("the folder is removable");
        let found = found.expect("the files are readable");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].parent, "x/src/b");
        assert_eq!(found[0].modules, ["part", "whole"]);
        let expected = ["b/part.rs:2 → whole", "b/whole.rs:3 → part"];
        assert_eq!(found[0].imports, expected);
    }
}
