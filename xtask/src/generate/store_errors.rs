//! `docs/stores/errors.md`: what servers answer, from the tables that the stores look errors up in.

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
