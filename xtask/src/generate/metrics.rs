//! `docs/metrics.md`: the table of metrics.

use std::process::Command;

use anyhow::Result;

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

pub(crate) fn page(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = Command::new(programs::debug(workspace, "examples/metrics")?);
    let contents = exec::capture(command.current_dir(workspace.root()))?;
    Ok(vec![Output {
        path: "docs/metrics.md".to_owned(),
        contents,
    }])
}
