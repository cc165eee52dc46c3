//! The table of contents of `docs/adr`: number, title and status of every decision.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::Output;
use crate::workspace::Workspace;

const FOLDER: &str = "docs/adr";

/// What stands before and after the number in a heading such as `# ADR 0007: Title`.
const NUMBER_MARKS: [char; 6] = [' ', '.', ':', '-', '–', '—'];

/// A decision, as its file's first lines tell.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    file: String,
    number: u32,
    title: String,
    status: String,
}

/// Makes the index; files without a number at the front of their name are no decisions.
pub(crate) fn index(workspace: &Workspace) -> Result<Vec<Output>> {
    let folder = workspace.path(FOLDER);
    let mut decisions = Vec::new();
    for entry in folder
        .read_dir()
        .with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        let file = path
            .file_name()
            .map_or_else(String::new, |n| n.to_string_lossy().into());
        if file.ends_with(".md") && file.starts_with(|c: char| c.is_ascii_digit()) {
            let text = std::fs::read_to_string(&path)?;
            decisions.push(read(&file, &text).with_context(|| format!("{FOLDER}/{file}"))?);
        }
    }
    decisions.sort_by_key(|decision| decision.number);
    for pair in decisions.windows(2) {
        let [first, second] = [&pair[0], &pair[1]];
        let same = first.number == second.number;
        ensure!(
            !same,
            "{} and {} have the same number",
            first.file,
            second.file
        );
    }
    Ok(vec![Output {
        path: format!("{FOLDER}/README.md"),
        contents: page(&decisions),
    }])
}

fn read(file: &str, text: &str) -> Result<Decision> {
    let digits: String = file.chars().take_while(char::is_ascii_digit).collect();
    let heading = text
        .lines()
        .find_map(|line| line.strip_prefix("# "))
        .context("no heading")?;
    let number = digits
        .parse()
        .context("no number at the front of the name")?;
    Ok(Decision {
        file: file.to_owned(),
        number,
        title: title(heading, number),
        status: status(text).context("no status: it needs a line `Status: …` near the top")?,
    })
}

/// The heading without the number that the table shows in a column of its own.
fn title(heading: &str, number: u32) -> String {
    let rest = heading.trim().strip_prefix("ADR").unwrap_or(heading.trim());
    let rest = rest.trim_start_matches(NUMBER_MARKS);
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    // Another number is part of the title, as in "128-bit tokens".
    let (digits, after) = rest.split_at(end);
    let title = if digits.parse() == Ok(number) {
        after
    } else {
        rest
    };
    title.trim_start_matches(NUMBER_MARKS).trim().to_owned()
}

/// The status, on a line `Status: …` with or without list and emphasis marks, or below a heading.
fn status(text: &str) -> Option<String> {
    let mut lines = text
        .lines()
        .take(30)
        .map(plain)
        .skip_while(|line| !is_status(line));
    let line = lines.next()?;
    let value = line["status".len()..]
        .trim_start_matches(':')
        .trim()
        .to_owned();
    let value = if value.is_empty() {
        lines.find(|line| !line.is_empty())?
    } else {
        value
    };
    // One sentence at most: the table has no room for more.
    let value = value.split(['.', ';']).next()?.trim().to_lowercase();
    (!value.is_empty()).then_some(value)
}

fn is_status(line: &str) -> bool {
    let lower = line.to_lowercase();
    lower == "status" || lower.starts_with("status:")
}

fn plain(line: &str) -> String {
    line.trim_start_matches(['#', '-', '*', '>', ' '])
        .replace("**", "")
        .replace('_', "")
        .trim()
        .into()
}

fn page(decisions: &[Decision]) -> String {
    let mut page = String::from(
        "<!-- Made by `cargo xtask generate`; do not edit. -->\n\n# Decisions\n\n\
         One page for each decision that is hard to undo: what was chosen, what was not, and why.\n\n\
         | number | decision | status |\n|---|---|---|\n",
    );
    for Decision {
        file,
        number,
        title,
        status,
    } in decisions
    {
        let title = title.replace('|', "\\|");
        // Writing into a `String` cannot fail.
        let _ = writeln!(page, "| {number} | [{title}]({file}) | {status} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_lose_their_number_only() {
        assert_eq!(title("ADR 0007: Fences grow", 7), "Fences grow");
        assert_eq!(title("7. Fences grow", 7), "Fences grow");
        assert_eq!(title("ADR-0007 — Fences grow", 7), "Fences grow");
        assert_eq!(title("128-bit tokens", 7), "128-bit tokens");
        assert_eq!(title("Fences grow", 7), "Fences grow");
    }

    #[test]
    fn the_status_is_found_in_its_usual_places() {
        assert_eq!(
            status("# T\n\nStatus: Accepted\n").as_deref(),
            Some("accepted")
        );
        assert_eq!(
            status("# T\n\n- **Status:** accepted\n").as_deref(),
            Some("accepted")
        );
        assert_eq!(
            status("# T\n\n## Status\n\nProposed. Later.\n").as_deref(),
            Some("proposed")
        );
        assert_eq!(status("# T\n\nnothing said\n"), None);
    }

    #[test]
    fn a_page_without_a_status_is_refused() {
        assert!(read("0001-a.md", "# A\n").is_err());
        let decision = read("0001-a.md", "# ADR 1: A | B\n\nStatus: accepted\n").unwrap();
        let page = page(&[decision]);
        assert!(
            page.contains("| 1 | [A \\| B](0001-a.md) | accepted |"),
            "{page}"
        );
    }
}
