//! Import circles between the modules of a crate, found as strongly connected components.
//!
//! A module is a file or folder of the first level below `src/`; `a.rs` and `a/` are one module.
//! The crate root and code under `#[cfg(test)]` do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::source;
use crate::workspace::Workspace;

/// Crates with a known circle, and the number of modules in it. The number may only fall: a larger
/// circle fails the check, and so does an entry whose circle has become smaller.
const KNOWN: &[(&str, usize)] = &[];

/// The imports of one crate: (importing module, imported module) → places as `file:line`.
pub(super) type Imports = BTreeMap<(String, String), Vec<String>>;

/// A circle that is not allowed, or an entry of [`KNOWN`] that is out of date.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Circle {
    pub(super) package: String,
    pub(super) modules: Vec<String>,
    /// Each import within the circle, with its first place.
    pub(super) imports: Vec<String>,
    pub(super) message: String,
}

/// Checks every package of the workspace that has a folder `src`.
pub(super) fn check(workspace: &Workspace, folders: &[String]) -> Result<Vec<Circle>> {
    let mut found = Vec::new();
    for folder in folders {
        let source = workspace.path(folder).join("src");
        let imports = read_imports(&source, folder)?;
        found.extend(judge(folder, &imports, KNOWN));
    }
    Ok(found)
}

/// The circles of a package that break the rule.
fn judge(package: &str, imports: &Imports, known: &[(&str, usize)]) -> Vec<Circle> {
    let allowed = known.iter().find(|(name, _)| *name == package);
    let allowed = allowed.map(|(_, count)| *count);
    let circles = circles(imports);
    let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(1);
    let mut found = Vec::new();
    for circle in circles
        .iter()
        .filter(|circle| Some(circle.len()) != allowed)
    {
        let within = |(from, to): &(String, String)| circle.contains(from) && circle.contains(to);
        let message = match allowed {
            Some(count) if circle.len() < count => continue,
            Some(count) => format!("the circle has grown from {count} modules"),
            None => "move what they share into a module that imports none of them".to_owned(),
        };
        found.push(Circle {
            package: package.to_owned(),
            modules: circle.iter().cloned().collect(),
            imports: imports
                .iter()
                .filter(|(edge, _)| within(edge))
                .map(|((from, to), places)| format!("{from} → {to}: {}", places[0]))
                .collect(),
            message,
        });
    }
    if let Some(count) = allowed.filter(|count| largest < *count) {
        found.push(Circle {
            package: package.to_owned(),
            modules: Vec::new(),
            imports: Vec::new(),
            message: format!("the circle has shrunk from {count} to {largest}: update KNOWN"),
        });
    }
    found
}

/// Reads the imports of all source files of a package.
fn read_imports(source: &Path, shown: &str) -> Result<Imports> {
    let mut files = Vec::new();
    list(source, &mut files)?;
    let mut modules = BTreeSet::new();
    let mut texts = Vec::new();
    let mut root = String::new();
    for file in files {
        let relative = file.strip_prefix(source)?.to_path_buf();
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let code = source::without_tests(&source::without_texts(&text));
        let path = source::module_path(&relative);
        match path.first().map(String::as_str) {
            None => root += &code,
            Some("bin") => {}
            Some(first) => {
                modules.insert(first.to_owned());
                let place = format!("{shown}/src/{}", relative.display());
                texts.push((path, place, code));
            }
        }
    }
    let exports = source::exports(&root, &modules);
    let mut imports = Imports::new();
    for (path, place, code) in texts {
        // A module of tests lies in a file of its own.
        if path.iter().any(|name| name == "tests") {
            continue;
        }
        for (name, line) in source::imports(&code, path.len()) {
            let target = modules.get(&name).or_else(|| exports.get(&name));
            let Some(target) = target.filter(|target| **target != path[0]) else {
                continue;
            };
            let edge = (path[0].clone(), target.clone());
            let places = imports.entry(edge).or_default();
            places.push(format!("{place}:{line}"));
        }
    }
    Ok(imports)
}

fn list(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// The strongly connected components with more than one module: modules that reach each other.
fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
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
    let mut circles = BTreeSet::new();
    for (module, reached) in &reachable {
        let mutual = reached.iter().filter(|other| {
            let back = reachable.get(other.as_str());
            back.is_some_and(|back| back.contains(*module))
        });
        let circle: BTreeSet<String> = mutual.cloned().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(edges: &[(&str, &str)]) -> Imports {
        let edge = |&(from, to): &(&str, &str)| {
            let place = format!("{from}.rs:1");
            ((from.to_owned(), to.to_owned()), vec![place])
        };
        edges.iter().map(edge).collect()
    }

    #[test]
    fn circle_is_found_with_its_imports() {
        let imports = imports(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]);
        let found = judge("crates/x", &imports, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].modules, ["a", "b", "c"]);
        let expected = ["a → b: a.rs:1", "b → c: b.rs:1", "c → a: c.rs:1"];
        assert_eq!(found[0].imports, expected);
    }

    #[test]
    fn imports_in_one_direction_are_no_circle() {
        let imports = imports(&[("a", "b"), ("a", "c"), ("b", "c")]);
        assert_eq!(judge("crates/x", &imports, &[]), []);
    }

    #[test]
    fn known_circle_may_only_shrink() {
        let three = imports(&[("a", "b"), ("b", "c"), ("c", "a")]);
        assert_eq!(judge("crates/x", &three, &[("crates/x", 3)]), []);
        let grown = judge("crates/x", &three, &[("crates/x", 2)]);
        assert!(grown[0].message.contains("grown"), "{grown:?}");
        let gone = judge("crates/x", &imports(&[("a", "b")]), &[("crates/x", 3)]);
        assert!(gone[0].message.contains("shrunk"), "{gone:?}");
    }

    #[test]
    fn seeded_circle_in_files_is_found_by_file_and_line() {
        let folder = std::env::temp_dir().join(format!("xtask-modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("b")).expect("the folder is writable");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("the folder is writable");
        };
        write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Thing;\n");
        write("a.rs", "// crate::c\nuse crate::b::{Deep, inner};\n");
        write(
            "b/mod.rs",
            "mod inner;\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n",
        );
        write(
            "b/inner.rs",
            "use super::super::{\n    c::d,\n    a as other,\n};\n",
        );
        write(
            "c.rs",
            "#[cfg(test)]\nuse crate::a::Helper;\n\nconst TEXT: &str = \"crate::a\";\n",
        );
        let imports = read_imports(&folder, "x");
        std::fs::remove_dir_all(&folder).expect("the folder is removable");
        let found = judge("x", &imports.expect("the files are readable"), &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].modules, ["a", "b"]);
        let expected = ["a → b: x/src/a.rs:2", "b → a: x/src/b/inner.rs:3"];
        assert_eq!(found[0].imports, expected);
    }
}
