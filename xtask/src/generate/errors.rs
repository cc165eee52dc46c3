//! `docs/errors`: a page for each problem code.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

pub(crate) fn pages(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = Command::new(programs::debug(workspace, "examples/problems")?);
    let printed = exec::capture(command.current_dir(workspace.root()))?;
    let pages: BTreeMap<String, String> = serde_json::from_str(&printed).context("no pages")?;
    let output = |(path, contents)| Output { path, contents };
    Ok(pages.into_iter().map(output).collect())
}
