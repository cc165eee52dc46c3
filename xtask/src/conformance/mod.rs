//! `cargo xtask conformance`: is every requirement met, and does the test that shows it exist?
//!
//! `docs/conformance.md` maps requirements to tests. A map rots silently: a test is renamed, a row
//! is forgotten. So each row is compared with the tests that nextest finds. The pages in
//! `docs/documents` do the same for every statement of the documents that the requirements were
//! made from; a requirement is partial
//! exactly while a statement of it is open.

mod documents;
mod judge;
mod page;
mod sdks;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::exec;
use crate::programs::EVERY_TEST;
use crate::table::table;
use crate::workspace::Workspace;
use documents::Report;
use judge::{Judgement, Verdict, judge};

const PAGE: &str = "docs/conformance.md";

/// All that is found, as it is written to the result file.
#[derive(Serialize)]
struct Found<'a> {
    requirements: &'a [Judgement],
    documents: &'a [Report],
}

/// Judges all pages, prints a row for each requirement and document, fails when one is broken.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let text = std::fs::read_to_string(workspace.path(PAGE))
        .with_context(|| format!("cannot read {PAGE}"))?;
    let documents = documents::read(workspace.root())?;
    let existing = existing_tests(workspace)?;
    let mut judgements = judge(&page::rows(&text), &existing);
    let reports = documents::judge(&documents, &existing, |path| workspace.path(path).exists());
    documents::compare(&mut judgements, &reports);
    let found = Found {
        requirements: &judgements,
        documents: &reports,
    };
    workspace.write_result("conformance", &found)?;
    print_requirements(&judgements);
    print_documents(&reports);
    let wrong_pages = reports.iter().any(|report| report.broken > 0);
    if wrong_pages || judgements.iter().any(|j| j.verdict == Verdict::Broken) {
        bail!(
            "{PAGE}, {} and the tests disagree, see above",
            documents::FOLDER
        );
    }
    Ok(())
}

fn print_requirements(judgements: &[Judgement]) {
    let cells = judgements.iter().map(|judgement| {
        [
            judgement.id.clone(),
            judgement.verdict.to_string(),
            judgement.tests.to_string(),
            judgement.open.join(", "),
            judgement.problems.join("; "),
        ]
    });
    let heading = ["requirement", "verdict", "tests", "open", "problem"];
    println!("{}", table(&heading, cells));
    let count = |verdict| judgements.iter().filter(|j| j.verdict == verdict).count();
    println!(
        "{} covered, {} partial, {} planned, {} broken",
        count(Verdict::Covered),
        count(Verdict::Partial),
        count(Verdict::Planned),
        count(Verdict::Broken)
    );
}

fn print_documents(reports: &[Report]) {
    let counts = reports.iter().map(|report| {
        let counts = [report.shown, report.differs, report.open, report.broken];
        let [shown, differs, open, broken] = counts.map(|count| count.to_string());
        [report.document.clone(), shown, differs, open, broken]
    });
    let heading = ["document", "shown", "differs", "open", "broken"];
    println!("{}", table(&heading, counts));
    let statements = reports.iter().flat_map(|report| &report.statements);
    let broken = statements.filter(|finding| !finding.problems.is_empty());
    for finding in broken {
        println!("{}: {}", finding.id, finding.problems.join("; "));
    }
}

/// What we read of nextest's list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct List {
    rust_suites: BTreeMap<String, Suite>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Suite {
    #[serde(default)]
    testcases: BTreeMap<String, serde_json::Value>,
}

/// The full names of all tests: the binary's id, then the path within it.
fn existing_tests(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = exec::cargo();
    command.args(["nextest", "list"]).args(EVERY_TEST);
    command
        .args(["--message-format", "json"])
        .current_dir(workspace.root());
    let list: List = serde_json::from_str(&exec::capture(&mut command)?)
        .context("cannot read the list of tests")?;
    let suites = list.rust_suites.into_iter();
    let mut tests: Vec<String> = suites
        .flat_map(|(id, suite)| {
            suite
                .testcases
                .into_keys()
                .map(move |test| format!("{id}::{test}"))
        })
        .collect();
    tests.extend(sdks::tests(workspace.root())?);
    Ok(tests)
}
