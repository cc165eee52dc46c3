//! The rule for paths that the pages at the root name: each is a file or a folder of the
//! repository, and `CONTRIBUTING.md` says where to change ten things.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Finding, Level};
use crate::markdown;

/// The name under which findings are counted.
pub(crate) const RULE: &str = "named-paths";

/// The page and the heading of the table that says where to change what.
const TABLE: (&str, &str) = ("CONTRIBUTING.md", "## Where do I change …?");

/// The fewest rows of that table.
const LEAST_ROWS: usize = 10;

/// Checks the pages at the root; `texts` is every text file of the repository by its path,
/// `others` are the rest.
pub(crate) fn check(texts: &BTreeMap<String, String>, others: &[String]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = texts
        .keys()
        .chain(others)
        .flat_map(|path| with_folders(path))
        .collect();
    let mut findings = Vec::new();
    let is_root_page = |path: &str| path.ends_with(".md") && !path.contains('/');
    for (path, text) in texts.iter().filter(|(path, _)| is_root_page(path)) {
        for word in markdown::read(text).words {
            let named = word.text.trim_end_matches('/');
            let top = named.split('/').next().unwrap_or_default();
            let is_path = word.text.contains('/') && paths.contains(top) && is_plain(named);
            if is_path && !paths.contains(named) {
                let message = format!("there is no {}", word.text);
                findings.push(finding(path, word.line, message));
            }
        }
    }
    if let Some(text) = texts.get(TABLE.0) {
        findings.extend(check_table(text));
    }
    findings
}

/// A path, and the folders that it lies in.
fn with_folders(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// Whether it is a path and no pattern.
fn is_plain(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_alphanumeric() || "/._-".contains(c))
}

/// Each row leads somewhere, and the words of a link are a part of the path that it leads to. That
/// the path exists is for the rule about links.
fn check_table(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let table = lines.skip_while(|(_, line)| *line != TABLE.1).skip(1);
    let table = table.take_while(|(_, line)| !line.starts_with('#'));
    let rows = table.filter(|(_, line)| line.starts_with('|')).skip(2);
    let mut count = 0;
    for (number, row) in rows {
        count += 1;
        let links = links(row);
        if links.is_empty() {
            let message = "this row leads nowhere: link the file".to_owned();
            findings.push(finding(TABLE.0, number, message));
        }
        for (words, target) in links {
            if !format!("/{target}/").contains(&format!("/{words}/")) {
                let message = format!("{words} is no part of {target}");
                findings.push(finding(TABLE.0, number, message));
            }
        }
    }
    if count < LEAST_ROWS {
        let message = format!("\"{}\" has {count} rows of at least {LEAST_ROWS}", TABLE.1);
        findings.push(finding(TABLE.0, 1, message));
    }
    findings
}

/// The links of a line, as words and target.
fn links(line: &str) -> Vec<(&str, &str)> {
    let parts = line.split('[').skip(1);
    parts
        .filter_map(|part| {
            let (words, rest) = part.split_once("](")?;
            Some((words, rest.split_once(')')?.0))
        })
        .collect()
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding {
        rule: RULE,
        level: Level::Failure,
        place: format!("{path}:{line}"),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        crate::house::messages(check, files)
    }

    fn table(rows: &[&str]) -> String {
        let fine = "| b | [src/b.rs](crates/b/src/b.rs) |\n".repeat(LEAST_ROWS - 1);
        format!(
            "# A\n{}\n| … | here |\n|---|---|\n{fine}{}\n",
            TABLE.1,
            rows.join("\n")
        )
    }

    #[test]
    fn paths_that_exist_and_words_that_are_none_are_fine() {
        let text = "`docs/img/` `docs/img/a.png` `target/x` `docs/*/a.md` `cargo run` `docs/NAME…`";
        assert_eq!(messages(&[("README.md", text)]), Vec::<String>::new());
    }

    #[test]
    fn path_that_does_not_exist_is_found() {
        let found = messages(&[
            ("README.md", "a\n`docs/img/b.png`"),
            ("docs/a.md", "`docs/b`"),
        ]);
        assert_eq!(found, ["README.md:2 there is no docs/img/b.png"]);
    }

    #[test]
    fn rows_of_the_table_lead_to_what_they_name() {
        let text = table(&["| c | [b/src](crates/b/src/lib.rs), [d.py](x/d.py) |"]);
        assert_eq!(messages(&[(TABLE.0, &text)]), Vec::<String>::new());

        let text = table(&["| c | `c` |", "| c | [a/src](crates/b/src/lib.rs) |"]);
        let expected = [
            "CONTRIBUTING.md:14 this row leads nowhere: link the file",
            "CONTRIBUTING.md:15 a/src is no part of crates/b/src/lib.rs",
        ];
        assert_eq!(messages(&[(TABLE.0, &text)]), expected);
        assert_eq!(messages(&[(TABLE.0, "# A\n")]).len(), 1, "too few rows");
    }
}
