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
mod tests {
    use super::*;

    fn statement(status: &str) -> Statement {
        Statement {
            id: "J1.1".to_owned(),
            requirements: vec!["C1".to_owned()],
            paths: vec!["crates/core/src/key.rs".to_owned()],
            tests: vec!["keys_hold".to_owned()],
            status: status.to_owned(),
            ..Statement::default()
        }
    }

    fn document(statements: Vec<Statement>) -> Vec<Document> {
        let name = "jobs".to_owned();
        vec![Document { name, statements }]
    }

    fn finding(statement: Statement) -> Finding {
        let existing = ["semel-core::key::tests::keys_hold".to_owned()];
        let is_there = |path: &str| path == "crates/core/src/key.rs";
        let reports = judge(&document(vec![statement]), &existing, is_there);
        reports[0].statements[0].clone()
    }

    #[test]
    fn a_row_is_shown_by_a_test_excused_by_a_link_or_open() {
        for (status, standing) in [
            ("shown", Standing::Shown),
            (
                "differs: [ADR 0002](../adr/0002-fail-closed.md)",
                Standing::Differs,
            ),
            ("open: the field is missing", Standing::Open),
        ] {
            let found = finding(statement(status));
            assert_eq!(
                (found.standing, found.problems.len()),
                (standing, 0),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_row_without_test_reason_or_mark_is_broken() {
        let no_test = Statement {
            tests: Vec::new(),
            ..statement("shown")
        };
        let nowhere = Statement {
            paths: Vec::new(),
            ..statement("shown")
        };
        let of_nothing = Statement {
            requirements: Vec::new(),
            ..statement("open: y")
        };
        for (wrong, problem) in [
            (no_test, "shown by no test"),
            (nowhere, "does not say where"),
            (
                of_nothing,
                "open without the requirement that it is a part of",
            ),
            (statement("differs"), "differs without a link to the reason"),
            (
                statement("differs: because"),
                "differs without a link to the reason",
            ),
            (statement("open"), "open without saying what is missing"),
            (statement(""), "unknown status \"\": shown, differs or open"),
            (
                statement("done"),
                "unknown status \"done\": shown, differs or open",
            ),
        ] {
            let found = finding(wrong);
            assert_eq!(found.standing, Standing::Broken, "{found:?}");
            assert_eq!(found.problems, [problem]);
        }
    }

    #[test]
    fn named_tests_files_and_requirements_must_exist() {
        let wrong = Statement {
            tests: vec!["no_such_test".to_owned()],
            paths: vec![
                "crates/core/src/gone.rs".to_owned(),
                "Builder::open".to_owned(),
            ],
            requirements: vec!["C13".to_owned()],
            ..statement("shown")
        };
        let problems = [
            "no test no_such_test",
            "no file crates/core/src/gone.rs",
            "C13 is no requirement",
        ];
        assert_eq!(finding(wrong).problems, problems);
        // An open row may name tests of the part that exists; they must exist too.
        let half = Statement {
            tests: vec!["no_such_test".to_owned()],
            ..statement("open: the rest")
        };
        assert_eq!(finding(half).standing, Standing::Broken);
    }

    #[test]
    fn each_id_is_used_once_in_all_documents() {
        let existing = ["keys_hold".to_owned()];
        let mut documents = document(vec![statement("shown")]);
        documents.extend(document(vec![statement("shown")]));
        let reports = judge(&documents, &existing, |_| true);
        assert_eq!((reports[0].shown, reports[1].broken), (1, 1));
        let problems = &reports[1].statements[0].problems;
        assert_eq!(problems, &["its id is used more than once"]);
    }

    #[test]
    fn a_requirement_is_partial_exactly_while_a_statement_of_it_is_open() {
        let existing = ["keys_hold".to_owned()];
        let reports = judge(&document(vec![statement("open: y")]), &existing, |_| true);
        let judged = |id: &str, verdict| Judgement {
            id: id.to_owned(),
            verdict,
            tests: 1,
            open: Vec::new(),
            problems: Vec::new(),
        };
        let mut judgements = [
            judged("C1", Verdict::Covered),
            judged("C1", Verdict::Partial),
            judged("C2", Verdict::Covered),
            judged("C2", Verdict::Partial),
            judged("C2", Verdict::Planned),
        ];
        compare(&mut judgements, &reports);
        let [done, partial, other_done, other_partial, planned] = judgements;
        assert_eq!(done.problems, ["marked done, but open"]);
        assert_eq!(
            (partial.verdict, partial.open),
            (Verdict::Partial, vec!["J1.1".to_owned()])
        );
        assert_eq!(other_done.verdict, Verdict::Covered);
        let problem = "marked partial, but no statement of it is open";
        assert_eq!(other_partial.problems, [problem]);
        assert_eq!(planned.verdict, Verdict::Planned);
    }

    /// All but the existence of the tests, which only nextest knows.
    #[test]
    fn the_pages_of_this_repository_are_whole() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let documents = read(&root).unwrap();
        let tests: Vec<String> = documents
            .iter()
            .flat_map(|document| &document.statements)
            .flat_map(|statement| statement.tests.clone())
            .collect();
        let reports = judge(&documents, &tests, |path| root.join(path).exists());
        let statements = reports.iter().flat_map(|report| &report.statements);
        let broken: Vec<&Finding> = statements
            .filter(|f| f.standing == Standing::Broken)
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
        let text = std::fs::read_to_string(root.join(super::super::PAGE)).unwrap();
        let rows = page::rows(&text);
        let named: Vec<String> = rows.iter().flat_map(|row| row.tests.clone()).collect();
        let mut judgements = super::super::judge::judge(&rows, &named);
        compare(&mut judgements, &reports);
        let broken: Vec<&Judgement> = judgements
            .iter()
            .filter(|judgement| judgement.verdict == Verdict::Broken)
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
