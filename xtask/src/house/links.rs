//! Rules about Markdown across files: links resolve, and Rust examples are compiled.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Finding, Level};
use crate::markdown::{self, Page};

/// The names under which findings are counted.
pub(crate) const RULES: [&str; 2] = ["links", "compiled-examples"];

/// Checks all pages; `texts` is every text file of the repository by its path, `others` are the
/// rest.
pub(crate) fn check(texts: &BTreeMap<String, String>, others: &[String]) -> Vec<Finding> {
    let is_page = |path: &str| path.ends_with(".md");
    let pages: BTreeMap<&str, Page> = texts
        .iter()
        .filter(|(path, _)| is_page(path))
        .map(|(path, text)| (path.as_str(), markdown::read(text)))
        .collect();
    let files: BTreeSet<&str> = texts.keys().chain(others).map(String::as_str).collect();
    let included = included(texts);
    let mut findings = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if let Err(why) = follow(path, link, &pages, &files) {
                findings.push(finding(RULES[0], path, link.line, why));
            }
        }
        for block in page.blocks.iter().filter(|block| is_rust(&block.kind)) {
            if block.kind.contains("ignore") {
                let why = "a Rust example that is not compiled; hide what it needs behind `# `";
                findings.push(finding(RULES[1], path, block.line, why.to_owned()));
            } else if !included.contains(*path) {
                let why = "no crate has this page among its documentation tests";
                findings.push(finding(RULES[1], path, block.line, why.to_owned()));
            }
        }
    }
    findings
}

fn finding(rule: &'static str, path: &str, line: usize, message: String) -> Finding {
    Finding {
        rule,
        level: Level::Failure,
        place: format!("{path}:{line}"),
        message,
    }
}

fn is_rust(kind: &str) -> bool {
    kind.split(',').next() == Some("rust")
}

fn follow(
    path: &str,
    link: &markdown::Link,
    pages: &BTreeMap<&str, Page>,
    files: &BTreeSet<&str>,
) -> Result<(), String> {
    let Some((file, anchor)) = link.inside() else {
        return Ok(());
    };
    let target = match file {
        "" => path.to_owned(),
        file => markdown::resolve(path, file)
            .ok_or_else(|| format!("{} leads out of the repository", link.target))?,
    };
    let is_folder = || {
        let start = format!("{target}/");
        files
            .range(start.as_str()..)
            .next()
            .is_some_and(|file| file.starts_with(&start))
    };
    if !files.contains(target.as_str()) && !is_folder() {
        return Err(format!("there is no {target}"));
    }
    let Some(anchor) = anchor else { return Ok(()) };
    match pages.get(target.as_str()) {
        Some(page) if page.anchors.iter().any(|known| known == anchor) => Ok(()),
        Some(_) => Err(format!("{target} has no heading #{anchor}")),
        None => Err(format!("{target} has no headings")),
    }
}

/// Pages whose code is compiled: those that a crate includes as documentation.
fn included(texts: &BTreeMap<String, String>) -> BTreeSet<String> {
    let sources = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
    let mut pages = BTreeSet::new();
    for (path, text) in sources {
        for part in text.split("doc = include_str!(\"").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            pages.extend(markdown::resolve(path, name));
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        crate::house::messages(check, files)
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let files = [
            (
                "README.md",
                "[a](docs/a.md#part-two) ![p](docs/img/a.png) [d](docs) [o](https://example.com)",
            ),
            (
                "docs/a.md",
                "# A\n## Part two\n[up](../README.md) [here](#a)",
            ),
        ];
        assert!(messages(&files).is_empty());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let files = [
            (
                "README.md",
                "[a](docs/b.md)\n[b](docs/a.md#nothing)\n[c](../x.md)",
            ),
            ("docs/a.md", "# A\n"),
        ];
        let expected = [
            "README.md:1 there is no docs/b.md",
            "README.md:2 docs/a.md has no heading #nothing",
            "README.md:3 ../x.md leads out of the repository",
        ];
        assert_eq!(messages(&files), expected);
    }

    #[test]
    fn code_that_nobody_compiles_is_found() {
        let source = (
            "crates/a/src/lib.rs",
            "#![doc = include_str!(\"../../../docs/a.md\")]",
        );
        let fine = ("docs/a.md", "```rust\nfn main() {}\n```\n");
        assert!(messages(&[source, fine]).is_empty());
        assert_eq!(messages(&[fine]).len(), 1);
        assert_eq!(
            messages(&[source, ("docs/a.md", "```rust,ignore\nx\n```\n")]).len(),
            1
        );
    }
}
