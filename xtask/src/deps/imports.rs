//! Which file of a crate imports from which: paths are followed through re-exports to the file
//! that defines the item.
//!
//! A `mod.rs` that declares and re-exports its files does not import from them; one that uses
//! their items does. Code under `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::names::{self, Names};
use super::source;

/// A module's path below the crate root.
type Module = Vec<String>;

/// A file's first import from another file.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) from: Module,
    pub(super) to: Module,
    /// `file:line`, below the folder `src`.
    pub(super) place: String,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Module(Module),
    /// An item of the file of this module.
    Item(Module),
    /// Another crate, or the prelude.
    Outside,
}

/// More re-exports of re-exports than this are a loop.
const LONGEST_CHAIN: usize = 16;

/// The files of a crate that are no tests, by module.
#[derive(Debug, Default)]
struct Crate {
    files: BTreeMap<Module, (String, Names)>,
}

/// Reads the imports of all source files of a package.
pub(super) fn read(source: &Path) -> Result<Vec<Import>> {
    let mut files = Vec::new();
    list(source, &mut files)?;
    let has_library = source.join("lib.rs").is_file();
    let mut all = BTreeMap::new();
    for file in files {
        let relative = file.strip_prefix(source)?;
        // Each program beside a library is a crate of its own.
        if relative.starts_with("bin") || (has_library && relative == Path::new("main.rs")) {
            continue;
        }
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let names = names::read(&source::without_tests(&source::without_texts(&text)));
        let shown = relative.display().to_string();
        all.insert(source::module_path(relative), (shown, names));
    }
    let mut read = Crate::default();
    read.keep(&Vec::new(), &mut all);
    Ok(read.imports())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
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
    Ok(())
}

impl Crate {
    /// Takes a module and those it declares. A file that only tests declare stays out.
    fn keep(&mut self, module: &Module, all: &mut BTreeMap<Module, (String, Names)>) {
        let Some((file, names)) = all.remove(module) else {
            return;
        };
        let children = names.children.clone();
        self.files.insert(module.clone(), (file, names));
        for child in children {
            self.keep(&below(module, &child), all);
        }
    }

    fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (module, (file, names)) in &self.files {
            for (to, line) in self.imports_of(module, names) {
                imports.push(Import {
                    from: module.clone(),
                    to,
                    place: format!("{file}:{line}"),
                });
            }
        }
        imports
    }

    /// The modules whose items a file uses, each with the first line.
    fn imports_of(&self, module: &Module, names: &Names) -> BTreeMap<Module, usize> {
        let mut found = BTreeMap::new();
        let mut add = |target: Target, line: usize| {
            if let Target::Item(other) = target
                && other != *module
            {
                let first = found.entry(other).or_insert(line);
                *first = line.min(*first);
            }
        };
        let heads: BTreeSet<&str> = names.mentions.iter().map(|m| m.path[0].as_str()).collect();
        for entry in &names.uses {
            // Whoever imports a module imports what it mentions of it.
            let target = match self.resolve(module, &entry.path, 0) {
                Target::Module(other) if entry.name == "*" => Target::Item(other),
                target => target,
            };
            if !entry.is_reexport || heads.contains(entry.name.as_str()) {
                add(target, entry.line);
            }
        }
        for mention in names.mentions.iter().filter(|m| m.path.len() > 1) {
            add(self.resolve(module, &mention.path, 0), mention.line);
        }
        found
    }

    /// Follows a path that stands in `module`.
    fn resolve(&self, module: &Module, path: &[String], chain: usize) -> Target {
        let mut at = module.clone();
        let mut rest = path;
        match path[0].as_str() {
            "crate" => {
                at.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", next)) =
                    rest.split_first().map(|(head, next)| (head.as_str(), next))
                {
                    at.pop();
                    rest = next;
                }
            }
            name if self.is_known(module, name) => {}
            _ => return Target::Outside,
        }
        for (index, name) in rest.iter().enumerate() {
            let is_last = index + 1 == rest.len();
            match self.step(&at, name, is_last, chain) {
                Target::Module(next) => at = next,
                target => return target,
            }
        }
        Target::Module(at)
    }

    /// Whether a path in `module` may begin with this name and stay in the crate.
    fn is_known(&self, module: &Module, name: &str) -> bool {
        let Some((_, names)) = self.files.get(module) else {
            return false;
        };
        names.children.contains(name) || names.uses.iter().any(|entry| entry.name == name)
    }

    /// What `name` is in the module `at`.
    fn step(&self, at: &Module, name: &str, is_last: bool, chain: usize) -> Target {
        let Some((_, names)) = self.files.get(at).filter(|_| chain < LONGEST_CHAIN) else {
            return Target::Outside;
        };
        let child = below(at, name);
        let is_child = self.files.contains_key(&child);
        if is_child && !is_last {
            return Target::Module(child);
        }
        // A function may have the name of its module: `pub use run::run`.
        let mut bound = names.uses.iter().filter(|entry| entry.name == name);
        if let Some(entry) = bound.find(|entry| !(is_child && entry.path.len() == 1)) {
            return self.resolve(at, &entry.path, chain + 1);
        }
        if is_child {
            return Target::Module(child);
        }
        if !names.defined.contains(name) {
            for glob in names.uses.iter().filter(|entry| entry.name == "*") {
                if let Target::Module(source) = self.resolve(at, &glob.path, chain + 1)
                    && self.has(&source, name)
                {
                    return self.step(&source, name, is_last, chain + 1);
                }
            }
        }
        Target::Item(at.clone())
    }

    fn has(&self, module: &Module, name: &str) -> bool {
        self.is_known(module, name)
            || self
                .files
                .get(module)
                .is_some_and(|(_, names)| names.defined.contains(name))
    }
}

fn below(module: &Module, name: &str) -> Module {
    let mut path = module.clone();
    path.push(name.to_owned());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate with these files, as `place → module`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = BTreeMap::new();
        for (file, code) in files {
            let code = source::without_tests(&source::without_texts(code));
            let module = source::module_path(Path::new(file));
            all.insert(module, ((*file).to_owned(), names::read(&code)));
        }
        let mut read = Crate::default();
        read.keep(&Vec::new(), &mut all);
        let imports = read.imports().into_iter();
        imports
            .map(|import| format!("{} → {}", import.place, import.to.join("::")))
            .collect()
    }

    #[test]
    fn reexports_lead_to_the_file_that_defines() {
        let found = edges(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::Thing;"),
            ("a/mod.rs", "mod deep;\npub use deep::Thing;"),
            ("a/deep.rs", "pub struct Thing;"),
            ("b.rs", "use crate::Thing;"),
        ]);
        assert_eq!(found, ["b.rs:1 → a::deep"]);
    }

    #[test]
    fn reexport_that_the_file_uses_itself_is_an_import() {
        let found = edges(&[
            (
                "lib.rs",
                "mod a;\npub use a::Thing;\nfn make() -> Thing { a::thing() }",
            ),
            (
                "a.rs",
                "pub struct Thing;\npub fn thing() -> Thing { crate::seed() }",
            ),
        ]);
        assert_eq!(found, ["lib.rs:2 → a", "a.rs:2 → "]);
    }

    #[test]
    fn module_import_counts_for_what_is_mentioned_of_it() {
        let found = edges(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a/mod.rs", "mod x;\nmod y;\npub use x::X;\npub use y::Y;"),
            ("a/x.rs", "pub struct X;"),
            ("a/y.rs", "pub struct Y;\nuse super::x;\nfn f() { x::X }"),
            ("b.rs", "use crate::a;\nfn f() { a::X; }"),
        ]);
        assert_eq!(found, ["a/y.rs:3 → a::x", "b.rs:2 → a::x"]);
    }

    #[test]
    fn files_of_tests_stay_out() {
        let found = edges(&[
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod helper;"),
            (
                "a.rs",
                "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::helper;",
            ),
            ("a/tests.rs", "use super::*;\nuse crate::helper;"),
            ("helper.rs", "use crate::a;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn function_with_the_name_of_its_module_is_found() {
        let found = edges(&[
            ("lib.rs", "mod run;\nmod b;\npub use run::run;"),
            ("run.rs", "pub fn run() {}"),
            (
                "b.rs",
                "fn f() { crate::run(); super::run::run(); std::run(); }",
            ),
        ]);
        assert_eq!(found, ["b.rs:1 → run"]);
    }
}
