//! `cargo xtask conformance`: is every requirement met, and does the test that shows it exist?
//!
//! `docs/conformance.md` maps requirements to tests. A map rots silently: a test is renamed, a row
//! is forgotten. So each row is compared with the tests that nextest finds.

mod judge;
mod page;
mod sdks;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::exec;
use crate::programs::EVERY_TEST;
use crate::table::table;
use crate::workspace::Workspace;
use judge::{Judgement, judge};

const PAGE: &str = "docs/conformance.md";

/// Judges the page, prints a row for each requirement, fails when one is broken.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let text = std::fs::read_to_string(workspace.path(PAGE))
        .with_context(|| format!("cannot read {PAGE}"))?;
    let rows = page::rows(&text);
    let judgements = judge(&rows, &existing_tests(workspace)?);
    workspace.write_result("conformance", &judgements)?;
    let cells = judgements.iter().map(|judgement| {
        let Judgement {
            id,
            verdict,
            tests,
            problems,
        } = judgement;
        [
            id.clone(),
            verdict.to_string(),
            tests.to_string(),
            problems.join("; "),
        ]
    });
    println!(
        "{}",
        table(&["requirement", "verdict", "tests", "problem"], cells)
    );
    let count = |word: &str| {
        judgements
            .iter()
            .filter(|j| j.verdict.to_string() == word)
            .count()
    };
    println!(
        "{} covered, {} partial, {} planned, {} broken",
        count("covered"),
        count("partial"),
        count("planned"),
        count("broken")
    );
    if count("broken") > 0 {
        bail!("{PAGE} and the tests disagree, see above");
    }
    Ok(())
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
