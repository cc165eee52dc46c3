//! Judges the statements of the requirements documents, in `docs/documents`.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::judge::{Judgement, Verdict, exists, is_requirement};
use super::page::{self, Statement};

/// The folder of the pages, one for each document, besides `README.md`.
pub(super) const FOLDER: &str = "docs/documents";

/// Folders at the root that the `where` column may name files of.
const ROOTS: [&str; 9] = [
    "bench/",
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "faults/",
    "sdks/",
    "spec/",
    "tests/",
];

/// A page about one document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) name: String,
    pub(super) statements: Vec<Statement>,
}

/// What is true of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Standing {
    /// Tests that exist show it.
    Shown,
    /// Semel does something else, for a reason that is written down.
    Differs,
    /// Something is missing, and the row says what.
    Open,
    /// The row is wrong.
    Broken,
}

/// One statement, judged.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) id: String,
    pub(super) asked: String,
    pub(super) requirements: Vec<String>,
    pub(super) standing: Standing,
    /// The reason of `differs`, and what is missing where it is `open`.
    pub(super) note: String,
    pub(super) problems: Vec<String>,
}

/// The judged statements of one document, and how many there are of each kind.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) document: String,
    pub(super) shown: usize,
    pub(super) differs: usize,
    pub(super) open: usize,
    pub(super) broken: usize,
    pub(super) statements: Vec<Finding>,
}

/// Reads all pages, by name.
pub(super) fn read(root: &Path) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let folder = root.join(FOLDER);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {FOLDER}"))?;
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = file.strip_suffix(".md").filter(|name| *name != "README") else {
            continue;
        };
        let text = std::fs::read_to_string(&path)?;
        let statements = page::statements(&text)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("{FOLDER}/{file}"))?;
        ensure!(!statements.is_empty(), "{FOLDER}/{file} has no statements");
        documents.push(Document {
            name: name.to_owned(),
            statements,
        });
    }
    ensure!(!documents.is_empty(), "{FOLDER} has no pages");
    documents.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(documents)
}

/// Judges all statements. `is_there` tells whether a path of the repository exists.
pub(super) fn judge(
    documents: &[Document],
    existing: &[String],
    is_there: impl Fn(&str) -> bool,
) -> Vec<Report> {
    let mut seen = HashSet::new();
    let mut reports = Vec::new();
    for document in documents {
        let mut findings = Vec::new();
        for statement in &document.statements {
            let mut finding = judge_statement(statement, existing, &is_there);
            if !seen.insert(&statement.id) {
                finding.fail("its id is used more than once".to_owned());
            }
            findings.push(finding);
        }
        let count = |standing| findings.iter().filter(|f| f.standing == standing).count();
        reports.push(Report {
            document: document.name.clone(),
            shown: count(Standing::Shown),
            differs: count(Standing::Differs),
            open: count(Standing::Open),
            broken: count(Standing::Broken),
            statements: findings,
        });
    }
    reports
}

impl Finding {
    fn fail(&mut self, problem: String) {
        self.standing = Standing::Broken;
        self.problems.push(problem);
    }
}

fn judge_statement(
    statement: &Statement,
    existing: &[String],
    is_there: &impl Fn(&str) -> bool,
) -> Finding {
    let (word, note) = match statement.status.split_once(':') {
        Some((word, note)) => (word, note.trim()),
        None => (statement.status.as_str(), ""),
    };
    let mut finding = Finding {
        id: statement.id.clone(),
        asked: statement.asked.clone(),
        requirements: statement.requirements.clone(),
        standing: Standing::Broken,
        note: note.to_owned(),
        problems: Vec::new(),
    };
    let mut problems = Vec::new();
    finding.standing = match word {
        "shown" => {
            if statement.tests.is_empty() {
                problems.push("shown by no test".to_owned());
            }
            if statement.paths.is_empty() {
                problems.push("does not say where".to_owned());
            }
            Standing::Shown
        }
        "differs" => {
            if !note.contains("](") {
                problems.push("differs without a link to the reason".to_owned());
            }
            Standing::Differs
        }
        "open" => {
            if note.is_empty() {
                problems.push("open without saying what is missing".to_owned());
            }
            if statement.requirements.is_empty() {
                problems.push("open without the requirement that it is a part of".to_owned());
            }
            Standing::Open
        }
        other => {
            problems.push(format!("unknown status {other:?}: shown, differs or open"));
            Standing::Broken
        }
    };
    let tests = statement.tests.iter();
    let missing = tests.filter(|test| !exists(test, existing));
    problems.extend(missing.map(|test| format!("no test {test}")));
    let paths = statement.paths.iter();
    let ours = paths.filter(|path| ROOTS.iter().any(|root| path.starts_with(root)));
    let missing = ours.filter(|path| !is_there(path));
    problems.extend(missing.map(|path| format!("no file {path}")));
    let unknown = statement
        .requirements
        .iter()
        .filter(|id| !is_requirement(id));
    problems.extend(unknown.map(|id| format!("{id} is no requirement")));
    for problem in problems {
        finding.fail(problem);
    }
    finding
}

/// A requirement with an open statement is partial, and one without is not.
pub(super) fn compare(judgements: &mut [Judgement], reports: &[Report]) {
    for judgement in judgements {
        let findings = reports.iter().flat_map(|report| &report.statements);
        judgement.open = findings
            .filter(|finding| finding.standing == Standing::Open)
            .filter(|finding| finding.requirements.contains(&judgement.id))
            .map(|finding| finding.id.clone())
            .collect();
        let problem = match (judgement.verdict, judgement.open.is_empty()) {
            (Verdict::Covered, false) => "marked done, but open",
            (Verdict::Partial, true) => "marked partial, but no statement of it is open",
            _ => continue,
        };
        judgement.verdict = Verdict::Broken;
        judgement.problems.push(problem.to_owned());
    }
}

#[cfg(test)]
mod tests;
