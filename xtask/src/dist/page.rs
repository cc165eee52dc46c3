//! The figures of a release in `docs/platforms.md`, between two marks.

use anyhow::{Context as _, Result};

use super::{Figures, megabytes};
use crate::workspace::Workspace;

const PAGE: &str = "docs/platforms.md";
const BEGIN: &str = "<!-- figures of `cargo xtask dist` -->\n";
const END: &str = "<!-- end of the figures -->\n";

/// Writes the figures into the page.
pub(super) fn write(workspace: &Workspace, figures: &Figures) -> Result<()> {
    let path = workspace.path(PAGE);
    let page = std::fs::read_to_string(&path).context(PAGE)?;
    let page = with_figures(&page, &shown(figures)).context(PAGE)?;
    Ok(std::fs::write(path, page)?)
}

/// The page with another text between the marks.
fn with_figures(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("has no mark for figures")?;
    let (_, after) = rest.split_once(END).context("has no end of the figures")?;
    Ok(format!("{before}{BEGIN}{text}{END}{after}"))
}

fn shown(figures: &Figures) -> String {
    let mut text = format!(
        "\nThe program has {:.1} MB and needs glibc {} or newer (version {}).\n\n| package | size |\n|---|---|\n",
        megabytes(figures.program_bytes),
        figures.glibc,
        figures.version
    );
    for package in &figures.packages {
        text += &format!("| `{}` | {} |\n", package.file, size(package.bytes));
    }
    text += "\n| installed on Debian 11 | first replayed answer after |\n|---|---|\n";
    for one in &figures.first_replays {
        text += &format!("| {} | {:.1} s |\n", one.package, one.seconds);
    }
    text + "\n"
}

fn size(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{:.1} kB", megabytes(bytes * 1000)),
        _ => format!("{:.1} MB", megabytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let expected = format!("a\n{BEGIN}new\n{END}b\n");
        assert_eq!(with_figures(&page, "new\n").unwrap(), expected);
        assert!(with_figures("a\n", "new\n").is_err());
    }

    #[test]
    fn sizes_have_a_fitting_unit() {
        assert_eq!(size(2_345), "2.3 kB");
        assert_eq!(size(12_345_678), "12.3 MB");
    }
}
