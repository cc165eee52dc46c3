//! Reading the table: `| C1 | where implemented | test names | status |`.

/// One row of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// What stands in backticks in the third column.
    pub(crate) tests: Vec<String>,
    pub(crate) status: String,
}

/// All rows whose first cell is the id of a requirement.
pub(crate) fn rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
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
}
