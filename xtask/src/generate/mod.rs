//! `cargo xtask generate`: files that are kept in the repository but made by a program.
//!
//! They are kept so that a change shows in review and other languages can read them; they are made
//! so that they cannot drift from what they describe. To add one, write a function that returns its
//! outputs and name it in [`GENERATORS`].

mod adr;
mod api;
mod cli;
mod config;
mod errors;
mod metrics;
mod openapi;
mod store_errors;
mod vectors;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::table::table;
use crate::workspace::Workspace;

/// One file, as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Relative to the root.
    pub(crate) path: String,
    pub(crate) contents: String,
}

/// A maker of files.
struct Generator {
    name: &'static str,
    make: fn(&Workspace) -> Result<Vec<Output>>,
}

/// Every generator.
const GENERATORS: &[Generator] = &[
    Generator {
        name: "adr-index",
        make: adr::index,
    },
    Generator {
        name: "cli",
        make: cli::pages,
    },
    Generator {
        name: "errors",
        make: errors::pages,
    },
    Generator {
        name: "metrics",
        make: metrics::page,
    },
    Generator {
        name: "store-errors",
        make: store_errors::page,
    },
    Generator {
        name: "openapi",
        make: openapi::document,
    },
    // After the document that it is made from.
    Generator {
        name: "api",
        make: api::page,
    },
    Generator {
        name: "config",
        make: config::files,
    },
    Generator {
        name: "vectors",
        make: vectors::files,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Current,
    Written,
    OutOfDate,
}

#[derive(Debug, Serialize)]
struct Row {
    generator: &'static str,
    path: String,
    state: State,
}

/// Writes what is out of date or, when only checking, fails with a list of it.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<()> {
    let mut rows = Vec::new();
    for generator in GENERATORS {
        let outputs =
            (generator.make)(workspace).with_context(|| format!("generator {}", generator.name))?;
        for output in outputs {
            let state = bring_up_to_date(workspace, &output, check)?;
            rows.push(Row {
                generator: generator.name,
                path: output.path,
                state,
            });
        }
    }
    let cells = rows.iter().map(|row| {
        let state = match row.state {
            State::Current => "current",
            State::Written => "written",
            State::OutOfDate => "OUT OF DATE",
        };
        [row.generator.to_owned(), row.path.clone(), state.to_owned()]
    });
    println!("{}", table(&["generator", "file", "state"], cells));
    workspace.write_result("generate", &rows)?;
    let stale: Vec<&str> = rows
        .iter()
        .filter(|r| r.state == State::OutOfDate)
        .map(|r| r.path.as_str())
        .collect();
    if !stale.is_empty() {
        bail!(
            "out of date: {}; `cargo xtask generate` writes them",
            stale.join(", ")
        );
    }
    Ok(())
}

fn bring_up_to_date(workspace: &Workspace, output: &Output, check: bool) -> Result<State> {
    let file = workspace.path(&output.path);
    if std::fs::read_to_string(&file).is_ok_and(|text| text == output.contents) {
        return Ok(State::Current);
    }
    if check {
        return Ok(State::OutOfDate);
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, &output.contents)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(State::Written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checking_reports_and_writing_mends() {
        let root = std::env::temp_dir().join(format!("xtask-generate-{}", std::process::id()));
        let workspace = Workspace::at(&root);
        let output = Output {
            path: "a/b.txt".to_owned(),
            contents: "new".to_owned(),
        };
        let state = |check| bring_up_to_date(&workspace, &output, check).unwrap();
        assert_eq!(state(true), State::OutOfDate);
        assert!(!root.join("a/b.txt").exists(), "a check writes nothing");
        assert_eq!(state(false), State::Written);
        assert_eq!(state(true), State::Current);
        std::fs::write(root.join("a/b.txt"), "by hand").unwrap();
        assert_eq!(state(true), State::OutOfDate);
        std::fs::remove_dir_all(root).unwrap();
    }
}
