//! `docs/errors`: a page for each code, made from the tables that answers are made from.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::Output;
use crate::exec;
use crate::workspace::Workspace;

pub(crate) fn pages(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = exec::cargo();
    command.args(["run", "--quiet", "--package", "semel-server"]);
    command.args(["--example", "problems"]);
    let printed = exec::capture(command.current_dir(workspace.root()))?;
    let pages: BTreeMap<String, String> = serde_json::from_str(&printed).context("no pages")?;
    let output = |(path, contents)| Output { path, contents };
    Ok(pages.into_iter().map(output).collect())
}
