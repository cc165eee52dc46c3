//! Compares the claims of the page with the existing tests.

use std::fmt;

use serde::Serialize;

use super::page::Row;

/// The requirements: a letter for each part of the list, and how many there are.
const REQUIREMENTS: [(char, u32); 5] = [('C', 12), ('L', 8), ('S', 7), ('W', 9), ('V', 7)];

/// What is true of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Marked done, and every test that it names exists.
    Covered,
    /// Marked partial, and every test that it names exists. Not counted as covered.
    Partial,
    /// Marked planned. Its tests need not exist yet.
    Planned,
    /// The page is wrong about it.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Covered => "covered",
            Self::Partial => "partial",
            Self::Planned => "planned",
            Self::Broken => "broken",
        })
    }
}

/// One requirement, judged.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judgement {
    pub(crate) id: String,
    pub(crate) verdict: Verdict,
    pub(crate) tests: usize,
    /// Statements of the documents that are a part of it, and open.
    pub(crate) open: Vec<String>,
    pub(crate) problems: Vec<String>,
}

/// Whether there is a requirement of that id.
pub(super) fn is_requirement(id: &str) -> bool {
    REQUIREMENTS.iter().any(|(letter, count)| {
        let number = id.strip_prefix(*letter).and_then(|n| n.parse().ok());
        number.is_some_and(|number: u32| (1..=*count).contains(&number))
    })
}

/// Judges every requirement, and every row that is about none.
pub(crate) fn judge(rows: &[Row], existing: &[String]) -> Vec<Judgement> {
    let ids: Vec<String> = REQUIREMENTS
        .iter()
        .flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")))
        .collect();
    let known = ids.iter().map(|id| {
        let found: Vec<&Row> = rows.iter().filter(|row| row.id == *id).collect();
        match found.as_slice() {
            [row] => judge_row(row, existing),
            [] => broken(id, "is not on the page"),
            _ => broken(id, "is on the page more than once"),
        }
    });
    let unknown = rows.iter().filter(|row| !ids.contains(&row.id));
    known
        .chain(unknown.map(|row| broken(&row.id, "is no requirement")))
        .collect()
}

fn broken(id: &str, problem: &str) -> Judgement {
    let problems = vec![problem.to_owned()];
    Judgement {
        id: id.to_owned(),
        verdict: Verdict::Broken,
        tests: 0,
        open: Vec::new(),
        problems,
    }
}

fn judge_row(row: &Row, existing: &[String]) -> Judgement {
    let mut problems: Vec<String> = row
        .tests
        .iter()
        .filter(|test| !exists(test, existing))
        .map(|test| format!("no test {test}"))
        .collect();
    let claimed = match row.status.as_str() {
        "done" => Verdict::Covered,
        "partial" => Verdict::Partial,
        "planned" => {
            problems.clear();
            Verdict::Planned
        }
        other => {
            problems.push(format!(
                "unknown status {other:?}: done, partial or planned"
            ));
            Verdict::Broken
        }
    };
    if claimed == Verdict::Covered && row.tests.is_empty() {
        problems.push("marked done but names no test".to_owned());
    }
    let verdict = if problems.is_empty() {
        claimed
    } else {
        Verdict::Broken
    };
    Judgement {
        id: row.id.clone(),
        verdict,
        tests: row.tests.len(),
        open: Vec::new(),
        problems,
    }
}

/// A test may be named by its full name or by any whole tail of it.
pub(super) fn exists(test: &str, existing: &[String]) -> bool {
    existing.iter().any(|full| {
        full.strip_suffix(test)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, tests: &[&str], status: &str) -> Row {
        let tests = tests.iter().map(ToString::to_string).collect();
        Row {
            id: id.to_owned(),
            tests,
            status: status.to_owned(),
        }
    }

    fn verdict(rows: &[Row], id: &str) -> Judgement {
        let existing = vec!["semel-core::engine::tests::replays_are_equal".to_owned()];
        judge(rows, &existing)
            .into_iter()
            .find(|judgement| judgement.id == id)
            .unwrap()
    }

    #[test]
    fn done_with_a_test_that_exists_is_covered() {
        for name in ["replays_are_equal", "tests::replays_are_equal"] {
            let judged = verdict(&[row("C1", &[name], "done")], "C1");
            assert_eq!(judged.verdict, Verdict::Covered, "{judged:?}");
        }
    }

    #[test]
    fn done_without_a_test_is_broken() {
        assert_eq!(
            verdict(&[row("C1", &[], "done")], "C1").verdict,
            Verdict::Broken
        );
    }

    #[test]
    fn a_test_that_does_not_exist_is_broken_and_so_is_half_a_name() {
        for name in ["no_such_test", "are_equal"] {
            let judged = verdict(&[row("C1", &[name], "done")], "C1");
            assert_eq!(judged.verdict, Verdict::Broken, "{name}");
        }
    }

    #[test]
    fn planned_is_not_covered_and_may_name_what_is_to_come() {
        let judged = verdict(&[row("C1", &["no_such_test"], "planned")], "C1");
        assert_eq!(judged.verdict, Verdict::Planned);
    }

    #[test]
    fn missing_repeated_and_made_up_requirements_are_broken() {
        assert_eq!(verdict(&[], "V7").problems, ["is not on the page"]);
        let twice = [row("C1", &[], "planned"), row("C1", &[], "planned")];
        assert_eq!(verdict(&twice, "C1").verdict, Verdict::Broken);
        assert_eq!(
            verdict(&[row("C13", &[], "planned")], "C13").verdict,
            Verdict::Broken
        );
        assert_eq!(
            verdict(&[row("C1", &[], "soon")], "C1").verdict,
            Verdict::Broken
        );
    }
}
