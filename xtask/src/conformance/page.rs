//! Reading the tables: `| C1 | where | test names | status |` of the requirements, and
//! `| J2.1 | asked | requirements | where | test names | status |` of the documents.

/// A requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// What stands in backticks in the third column.
    pub(crate) tests: Vec<String>,
    pub(crate) status: String,
}

/// A statement of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) id: String,
    pub(crate) asked: String,
    /// The requirements that it is a part of.
    pub(crate) requirements: Vec<String>,
    /// Files and folders that are named in backticks.
    pub(crate) paths: Vec<String>,
    pub(crate) tests: Vec<String>,
    pub(crate) status: String,
}

/// All rows whose first cell is the id of a requirement.
pub(crate) fn rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let cells = cells(line)?;
    let [id, _where, tests, status] = cells.as_slice() else {
        return None;
    };
    let id = id.trim_matches(['*', '`']);
    let number = id.strip_prefix(|c: char| c.is_ascii_uppercase())?;
    number.parse::<u32>().ok()?;
    Some(Row {
        id: id.to_owned(),
        tests: in_backticks(tests),
        status: status.trim_matches(['*', '`']).to_lowercase(),
    })
}

/// All statements of a document's page: rows whose first cell begins with a capital and a digit.
///
/// # Errors
/// The id of a row that has another number of cells.
pub(crate) fn statements(text: &str) -> Result<Vec<Statement>, String> {
    text.lines().filter_map(statement).collect()
}

fn statement(line: &str) -> Option<Result<Statement, String>> {
    let cells = cells(line)?;
    let id = (*cells.first()?).to_owned();
    let mut letters = id.chars();
    let starts_like_an_id =
        letters.next()?.is_ascii_uppercase() && letters.next()?.is_ascii_digit();
    if !starts_like_an_id {
        return None;
    }
    let [_, asked, requirements, place, tests, status] = cells.as_slice() else {
        return Some(Err(format!("{id} has {} cells, not 6", cells.len())));
    };
    let requirements = requirements.split(',').map(str::trim);
    let named = requirements.filter(|id| !id.is_empty() && *id != "–");
    Some(Ok(Statement {
        asked: (*asked).to_owned(),
        requirements: named.map(str::to_owned).collect(),
        paths: in_backticks(place),
        tests: in_backticks(tests),
        status: (*status).to_owned(),
        id,
    }))
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(line.split('|').map(str::trim).collect())
}

/// Every second piece between backticks is inside of a pair.
fn in_backticks(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(|name| name.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_of_requirements_are_read() {
        let page = "# Conformance\n\n| n | where | tests | status |\n|---|---|---|---|\n\
                    | C1 | `core::engine` | `a::b`, `c` and more | done |\n\
                    | **L2** | – | – | planned |\n\
                    not a row\n";
        let rows = rows(page);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[0].tests, ["a::b", "c"]);
        assert_eq!(rows[0].status, "done");
        assert_eq!((rows[1].id.as_str(), rows[1].tests.len()), ("L2", 0));
    }

    #[test]
    fn statements_are_read_with_their_requirements() {
        let page = "| id | asked | for | where | tests | status |\n|---|---|---|---|---|---|\n\
                    | J2.1 | `x` is y | C2, V3 | `crates/a.rs` | `a::b` | open: no y |\n\
                    | O4.2 | z | – | – | – | differs: [why](../a.md) |\n";
        let statements = statements(page).unwrap();
        assert_eq!(statements.len(), 2, "{statements:?}");
        assert_eq!(statements[0].requirements, ["C2", "V3"]);
        assert_eq!(statements[0].paths, ["crates/a.rs"]);
        assert_eq!(statements[0].status, "open: no y");
        assert_eq!(statements[1].requirements, [""; 0]);
    }

    #[test]
    fn a_statement_that_lost_a_cell_is_an_error_and_not_skipped() {
        let error = statements("| J2.1 | x is y | C2 | shown |\n").unwrap_err();
        assert_eq!(error, "J2.1 has 4 cells, not 6");
    }
}
