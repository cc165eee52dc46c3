//! Stages the sources of the book.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::house;
use crate::markdown;
use crate::workspace::Workspace;

const SUMMARY: &str = "docs/SUMMARY.md";

/// What mdBook itself reads, and where it wants it.
const OWN: [(&str, &str); 2] = [
    ("docs/book/book.toml", "book.toml"),
    ("docs/book/semel.css", "semel.css"),
];

pub(crate) struct Staged {
    pub(crate) chapters: usize,
    pub(crate) files: usize,
}

/// Fills `root` anew.
pub(crate) fn stage(workspace: &Workspace, root: &Path) -> Result<Staged> {
    if root.exists() {
        std::fs::remove_dir_all(root)
            .with_context(|| format!("cannot remove {}", root.display()))?;
    }
    let summary = std::fs::read_to_string(workspace.path(SUMMARY))
        .with_context(|| format!("cannot read {SUMMARY}"))?;
    let tracked = house::files(workspace)?;
    let summary = with_folders(&summary, &tracked, |page| heading(workspace, page))?;
    let chapters = chapters(&summary)?;
    let forgotten = forgotten(&tracked, &chapters);
    ensure!(
        forgotten.is_empty(),
        "not in {SUMMARY}: {}",
        forgotten.join(", ")
    );
    let pages = root.join("src");
    write(
        &pages.join("SUMMARY.md"),
        from_the_root(&summary)?.as_bytes(),
    )?;
    let mut beside = BTreeSet::new();
    for chapter in &chapters {
        let text = std::fs::read_to_string(workspace.path(chapter))
            .with_context(|| format!("cannot read {chapter}, which {SUMMARY} names"))?;
        for link in markdown::read(&text).links {
            let Some((file, _)) = link.inside().filter(|(file, _)| !file.is_empty()) else {
                continue;
            };
            let file = markdown::resolve(chapter, file)
                .with_context(|| format!("{chapter}: {}", link.target))?;
            if file.ends_with(".md") {
                ensure!(
                    chapters.contains(&file),
                    "{chapter}:{} leads to {file}, which is not in {SUMMARY}",
                    link.line
                );
            } else if workspace.path(&file).is_dir() {
                bail!(
                    "{chapter}:{} leads to the folder {file}; name a file of it",
                    link.line
                );
            } else {
                beside.insert(file);
            }
        }
        write(&pages.join(chapter), as_index(&text).as_bytes())?;
    }
    for file in &beside {
        let bytes =
            std::fs::read(workspace.path(file)).with_context(|| format!("cannot read {file}"))?;
        write(&pages.join(file), &bytes)?;
    }
    for (from, to) in OWN {
        let bytes =
            std::fs::read(workspace.path(from)).with_context(|| format!("cannot read {from}"))?;
        write(&root.join(to), &bytes)?;
    }
    Ok(Staged {
        chapters: chapters.len(),
        files: beside.len(),
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// The files that the summary names, seen from the root.
fn chapters(summary: &str) -> Result<BTreeSet<String>> {
    let links = markdown::read(summary).links;
    let mut chapters = BTreeSet::new();
    for link in links {
        let file = markdown::resolve(SUMMARY, &link.target)
            .with_context(|| format!("{SUMMARY}: {}", link.target))?;
        ensure!(
            chapters.insert(file),
            "{SUMMARY} names {} twice",
            link.target
        );
    }
    Ok(chapters)
}

/// A folder's `README.md` stands for its pages: they come below it, by name.
fn with_folders(
    summary: &str,
    tracked: &[String],
    title: impl Fn(&str) -> Result<String>,
) -> Result<String> {
    let mut text = String::new();
    for line in summary.lines() {
        text.push_str(line);
        text.push('\n');
        let target = line
            .rsplit_once("](")
            .and_then(|(_, end)| end.strip_suffix(')'));
        let Some(folder) = target.and_then(|target| target.strip_suffix("README.md")) else {
            continue;
        };
        // Those of the examples are no folders of pages.
        if folder.is_empty() || folder.starts_with("..") {
            continue;
        }
        let start = format!("docs/{folder}");
        let pages = tracked.iter().filter(|file| file.starts_with(&start));
        for page in pages.filter(|page| page.ends_with(".md") && !page.ends_with("README.md")) {
            let name = page.trim_start_matches("docs/");
            text.push_str(&format!("  - [{}]({name})\n", title(page)?));
        }
    }
    Ok(text)
}

/// What a page calls itself.
fn heading(workspace: &Workspace, page: &str) -> Result<String> {
    let text = std::fs::read_to_string(workspace.path(page))?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    let heading = heading.with_context(|| format!("{page} has no heading"))?;
    Ok(heading.replace(['[', ']'], ""))
}

/// Pages under `docs` that are missing in the book.
fn forgotten(tracked: &[String], chapters: &BTreeSet<String>) -> Vec<String> {
    let pages = tracked
        .iter()
        .filter(|file| file.starts_with("docs/") && file.ends_with(".md"));
    let pages = pages.filter(|file| *file != SUMMARY && !chapters.contains(*file));
    pages.cloned().collect()
}

/// The summary lies beside the pages here, and at the root of the book.
fn from_the_root(summary: &str) -> Result<String> {
    let mut text = String::new();
    for line in summary.lines() {
        match line
            .rsplit_once("](")
            .and_then(|(start, end)| Some((start, end.strip_suffix(')')?)))
        {
            Some((start, target)) => {
                let file = markdown::resolve(SUMMARY, target)
                    .with_context(|| format!("{SUMMARY}: {target}"))?;
                text.push_str(&format!("{start}]({file})\n"));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    Ok(text)
}

/// A folder's `README.md` becomes its `index.html`, and links have to say so.
fn as_index(text: &str) -> String {
    text.replace("README.md)", "index.html)")
        .replace("README.md#", "index.html#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_seen_from_the_root() {
        let summary = "# Summary\n\n[Start](../README.md)\n- [Protocol](../spec/protocol.md)\n  - [A](a.md)\n";
        let expected =
            "# Summary\n\n[Start](README.md)\n- [Protocol](spec/protocol.md)\n  - [A](docs/a.md)\n";
        assert_eq!(from_the_root(summary).unwrap(), expected);
        let named: Vec<String> = chapters(summary).unwrap().into_iter().collect();
        assert_eq!(named, ["README.md", "docs/a.md", "spec/protocol.md"]);
    }

    #[test]
    fn the_pages_of_a_folder_come_below_it() {
        let tracked = ["docs/adr/0001-a.md", "docs/adr/README.md", "docs/b.md"].map(str::to_owned);
        let summary = "- [Start](../README.md)\n- [Decisions](adr/README.md)\n- [B](b.md)\n";
        let found = with_folders(summary, &tracked, |_| Ok("A".to_owned())).unwrap();
        let expected = "- [Start](../README.md)\n- [Decisions](adr/README.md)\n  - [A](adr/0001-a.md)\n- [B](b.md)\n";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_page_that_is_not_in_the_summary_is_found() {
        let tracked = ["docs/a.md", "docs/b.md", "docs/SUMMARY.md", "src/c.md"].map(str::to_owned);
        let chapters = BTreeSet::from(["docs/a.md".to_owned()]);
        assert_eq!(forgotten(&tracked, &chapters), ["docs/b.md"]);
    }
}
