//! `docs/stores/errors.md`: the errors of servers, and how the stores classify them.

use std::process::Command;

use anyhow::Result;

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

pub(crate) fn page(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = Command::new(programs::debug(workspace, "examples/store-errors")?);
    let contents = exec::capture(command.current_dir(workspace.root()))?;
    Ok(vec![Output {
        path: "docs/stores/errors.md".to_owned(),
        contents,
    }])
}
