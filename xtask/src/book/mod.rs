//! `cargo xtask book`: the documentation as a book that is read in a browser, searched offline, and
//! printed.
//!
//! The pages stay where they are: beside the code, readable as they are. What the summary names,
//! and what those pages link to, is laid out under `target/book/src` with the paths that it has
//! here, so that no link has to change; mdBook makes the rest.

mod html;
mod stage;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::exec;
use crate::table::table;
use crate::workspace::Workspace;

/// The version that the book is made with.
const MDBOOK: &str = "0.5.4";

#[derive(Debug, Serialize)]
struct Built {
    chapters: usize,
    files: usize,
    html_pages: usize,
    broken_links: Vec<String>,
}

/// Lays out, builds, and checks what was built.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mdbook = mdbook(workspace)?;
    let root = workspace.path("target/book");
    let staged = stage::stage(workspace, &root)?;
    exec::capture(Command::new(mdbook).arg("build").arg(&root))?;
    let checked = html::check(&root.join("html"))?;
    let built = Built {
        chapters: staged.chapters,
        files: staged.files,
        html_pages: checked.pages,
        broken_links: checked.broken,
    };
    workspace.write_result("book", &built)?;
    let row = [
        built.chapters.to_string(),
        built.files.to_string(),
        built.html_pages.to_string(),
        built.broken_links.len().to_string(),
    ];
    println!(
        "{}",
        table(
            &[
                "chapters",
                "files beside them",
                "HTML pages",
                "broken links"
            ],
            [row]
        )
    );
    if !built.broken_links.is_empty() {
        bail!(
            "links of the book lead nowhere:\n{}",
            built.broken_links.join("\n")
        );
    }
    println!("open target/book/html/index.html");
    Ok(())
}

/// The program; built where this version isn't there. Without what it serves and watches with,
/// which is most of it, and not optimised: building takes longer than the book.
fn mdbook(workspace: &Workspace) -> Result<PathBuf> {
    let own = workspace.path(format!("target/tools/mdbook-{MDBOOK}"));
    let program = own.join("bin/mdbook");
    if program.is_file() {
        return Ok(program);
    }
    if let Some(found) = exec::find_program("mdbook") {
        let version = exec::capture(Command::new(&found).arg("--version"))?;
        if version
            .trim()
            .trim_start_matches("mdbook ")
            .trim_start_matches('v')
            == MDBOOK
        {
            return Ok(found);
        }
    }
    let mut install = exec::cargo();
    install.args([
        "install",
        "--locked",
        "--debug",
        "--no-default-features",
        "--features",
        "search",
    ]);
    install
        .arg("--root")
        .arg(&own)
        .arg(format!("mdbook@{MDBOOK}"));
    exec::run(install.current_dir(workspace.root())).context("cannot install mdBook")?;
    Ok(program)
}
