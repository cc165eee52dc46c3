//! What is wrong with a row, and what is not.

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
