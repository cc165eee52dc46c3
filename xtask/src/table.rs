//! The layout of the tables that commands print.

use comfy_table::{ContentArrangement, Table, presets};

/// Lays out rows under a heading; wide cells wrap rather than run over the edge.
pub(crate) fn table<R, C>(heading: &[&str], rows: R) -> Table
where
    R: IntoIterator<Item = C>,
    C: IntoIterator<Item = String>,
{
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // Output of a CI run has no terminal to ask, and a table wider than this is hard to read
    // anyway.
    table.set_width(110);
    table.set_header(heading.iter().map(ToString::to_string).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row.into_iter().collect::<Vec<_>>());
    }
    table
}

/// Seconds as every table shows them.
pub(crate) fn seconds(value: f64) -> String {
    format!("{value:.1} s")
}
