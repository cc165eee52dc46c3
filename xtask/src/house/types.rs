//! The rules for public types: those of published crates can grow without a new major version, and
//! each name means one thing. ADR 0037 lists the exceptions, and why.
//!
//! The types are read from the sources; `unreachable_pub` makes sure that `pub` means public. Types
//! that a macro writes are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::published;
use super::rules::{Finding, Level};

/// The names under which findings are counted.
pub(crate) const RULES: [&str; 2] = ["growing-types", "type-names"];

/// The page whose tables list the exceptions: rows of crate, names and reason.
const EXCEPTIONS: &str = "docs/adr/0037-published-crates-and-minimum-rust.md";

/// The heading over the types that match all their cases or fields on purpose.
const EXHAUSTIVE: &str = "## Exhaustive on purpose";

/// The heading over the names that several modules use.
const SHARED: &str = "## Names of several types";

/// A public type, as its source says.
#[derive(Debug, PartialEq, Eq)]
struct PublicType {
    name: String,
    /// The path and the line of its definition.
    place: String,
    /// Whether it freezes its variants or fields: an enum, or a struct without private fields, that
    /// is not `#[non_exhaustive]`. A tuple of one field is its value, and has nothing to grow.
    frozen: bool,
}

/// Both rules; `texts` is every text file of the repository by its path.
pub(crate) fn check(texts: &BTreeMap<String, String>) -> Vec<Finding> {
    let page = texts.get(EXCEPTIONS).map_or("", String::as_str);
    let mut findings = growing(texts, &listed(page, EXHAUSTIVE));
    findings.extend(names(texts, &listed(page, SHARED)));
    findings
}

/// Frozen types that a user of a published crate can reach, and exceptions that are none.
fn growing(texts: &BTreeMap<String, String>, listed: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = BTreeSet::new();
    for (folder, package) in published::packages(texts) {
        let api = texts.get(&format!("spec/api/{package}.txt"));
        let reachable = reachable(api.map_or("", String::as_str));
        for found in types(texts, &format!("{folder}/src/")) {
            if !found.frozen || !reachable.contains(&found.name) {
                continue;
            }
            if !listed.contains(&found.name) {
                let advice = "add `#[non_exhaustive]`, or a reason to ADR 0037";
                let message = format!("{} can't grow: {advice}", found.name);
                findings.push(failure(0, found.place, message));
            }
            needed.insert(found.name);
        }
    }
    findings.extend(unneeded(0, listed, &needed));
    findings
}

/// Names that more than one type below `crates/` has, and exceptions that are none.
fn names(texts: &BTreeMap<String, String>, listed: &BTreeSet<String>) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for found in types(texts, "crates/") {
        places.entry(found.name).or_default().push(found.place);
    }
    places.retain(|_, places| places.len() > 1);
    let mut findings = Vec::new();
    for (name, places) in &places {
        if let (false, [first, others @ ..]) = (listed.contains(name), places.as_slice()) {
            let message = format!("{name} is also a type in {}", others.join(", "));
            findings.push(failure(1, first.clone(), message));
        }
    }
    let needed = places.into_keys().collect();
    findings.extend(unneeded(1, listed, &needed));
    findings
}

fn failure(rule: usize, place: String, message: String) -> Finding {
    Finding {
        rule: RULES[rule],
        level: Level::Failure,
        place,
        message,
    }
}

fn unneeded(rule: usize, listed: &BTreeSet<String>, needed: &BTreeSet<String>) -> Vec<Finding> {
    let unneeded = listed.difference(needed);
    let message = |name| format!("{name} needs no exception any more");
    unneeded
        .map(|name| failure(rule, EXCEPTIONS.to_owned(), message(name)))
        .collect()
}

/// The names in code quotes in the first cells of the table under `heading`.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let cells = section.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted.map(str::to_owned).collect()
}

/// The names of the enums and structs in a list of `cargo xtask api`.
fn reachable(api: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let mut words = line.split(' ').skip_while(|word| *word != "pub").skip(1);
        let kind = words.next()?;
        let path = words.next()?;
        let name = path.split(['<', '(']).next()?.rsplit("::").next()?;
        matches!(kind, "enum" | "struct").then(|| name.to_owned())
    };
    api.lines().filter_map(name).collect()
}

/// The public types in the sources below `folder`.
fn types(texts: &BTreeMap<String, String>, folder: &str) -> Vec<PublicType> {
    let is_source =
        |path: &str| path.starts_with(folder) && path.contains("/src/") && path.ends_with(".rs");
    let sources = texts.iter().filter(|(path, _)| is_source(path));
    sources
        .flat_map(|(path, text)| types_in(path, text))
        .collect()
}

fn types_in(path: &str, text: &str) -> Vec<PublicType> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((kind, rest)) = line
            .trim_start()
            .strip_prefix("pub ")
            .and_then(|item| item.split_once(' '))
        else {
            continue;
        };
        if !["enum", "struct", "trait", "type", "union"].contains(&kind) {
            continue;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let frozen = match kind {
            "enum" => true,
            "struct" => is_open(after, &lines[at..]),
            _ => false,
        };
        found.push(PublicType {
            name: name.to_owned(),
            place: format!("{path}:{}", at + 1),
            frozen: frozen && !has_attribute(&lines[..at], "non_exhaustive"),
        });
    }
    found
}

/// Whether the struct that begins with `lines` has fields, and all of them are public.
fn is_open(after_name: &str, lines: &[&str]) -> bool {
    if let Some((_, tuple)) = after_name.split_once('(') {
        return tuple.starts_with("pub ") && tuple.contains(", ");
    }
    let indent = lines[0].len() - lines[0].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let fields = lines.iter().skip(1).take_while(|line| **line != end);
    let is_field = |line: &&&str| {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        depth == indent + 4 && text.contains(':') && !text.starts_with(['/', '#'])
    };
    let mut fields = fields.filter(is_field).peekable();
    lines[0].ends_with('{')
        && fields.peek().is_some()
        && fields.all(|field| field.trim_start().starts_with("pub "))
}

/// Whether the attributes that end with `lines` name `attribute`.
fn has_attribute(lines: &[&str], attribute: &str) -> bool {
    let ends_before = |line: &str| {
        let is_comment = line.starts_with("//");
        !is_comment && (line.is_empty() || line.ends_with(['{', '}', ';']))
    };
    let own = lines.iter().rev().map(|line| line.trim());
    let mut own = own.take_while(|line| !ends_before(line));
    own.any(|line| !line.starts_with("//") && line.contains(attribute))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"semel-a\"\n";

    fn texts(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        let files = files.iter().copied();
        files
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .collect()
    }

    fn found(source: &str, page: &str) -> Vec<String> {
        let api =
            "pub enum semel_a::Kind\npub struct semel_a::Pair<T>\npub struct semel_a::Id(_)\n";
        let texts = texts(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", source),
            ("spec/api/semel-a.txt", api),
            (EXCEPTIONS, page),
        ]);
        check(&texts).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn public_enums_and_open_structs_can_grow_or_have_a_reason() {
        let advice = "can't grow: add `#[non_exhaustive]`, or a reason to ADR 0037";
        let plain = "/// One; and another.\n#[derive(Debug)]\npub enum Kind {\n    A,\n}\n";
        assert_eq!(found(plain, ""), [format!("Kind {advice}")]);
        let marked = plain.replace("pub enum", "#[non_exhaustive]\npub enum");
        assert_eq!(found(&marked, ""), Vec::<String>::new());
        let page = format!("{EXHAUSTIVE}\n\n| `Kind` | it is complete |\n");
        assert_eq!(found(plain, &page), Vec::<String>::new());
        assert_eq!(found(&marked, &page), ["Kind needs no exception any more"]);

        let open = "pub struct Pair<T> {\n    pub a: T,\n    pub b: T,\n}\n";
        assert_eq!(found(open, ""), [format!("Pair {advice}")]);
        let closed = open.replace("pub b", "b");
        assert_eq!(found(&closed, ""), Vec::<String>::new());
        let tuple = "pub struct Pair<T>(pub T, pub T);\n";
        assert_eq!(found(tuple, ""), [format!("Pair {advice}")]);
        let newtype = "pub struct Id(pub u64);\n";
        assert_eq!(
            found(newtype, ""),
            Vec::<String>::new(),
            "a newtype is its value"
        );
        let hidden = "pub enum Hidden {\n    A,\n}\n";
        assert_eq!(
            found(hidden, ""),
            Vec::<String>::new(),
            "not in the list of the API"
        );
    }

    #[test]
    fn the_attribute_of_another_type_does_not_count() {
        let source =
            "#[non_exhaustive]\npub enum Other {\n    A,\n}\n\npub enum Kind {\n    A,\n}\n";
        assert_eq!(found(source, "").len(), 1);
    }

    #[test]
    fn a_type_name_means_one_thing() {
        let one = ("crates/a/src/lib.rs", "pub struct Name;\n");
        let other = ("crates/b/src/b.rs", "pub type Name = u8;\n");
        let own = (
            "crates/b/src/c.rs",
            "pub(crate) struct Name;\nstruct Name;\n",
        );
        let messages = |files: &[(&str, &str)]| -> Vec<String> {
            check(&texts(files))
                .into_iter()
                .map(|f| f.message)
                .collect()
        };
        assert_eq!(messages(&[one, own]), Vec::<String>::new());
        let found = messages(&[one, other]);
        assert_eq!(found, ["Name is also a type in crates/b/src/b.rs:1"]);
        let page = format!("{SHARED}\n\n| `Name` | both are names |\n\n## Next\n\n| `B` | - |\n");
        let page = (EXCEPTIONS, page.as_str());
        assert_eq!(messages(&[one, other, page]), Vec::<String>::new());
        assert_eq!(messages(&[one, page]), ["Name needs no exception any more"]);
    }
}
