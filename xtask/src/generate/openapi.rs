//! `spec/openapi.json`: both APIs of the server, as its routes describe themselves.
//!
//! By a program of its own, so that this one can be built when the server can't.

use std::process::Command;

use anyhow::Result;

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

pub(crate) fn document(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = Command::new(programs::debug(workspace, "examples/openapi")?);
    let contents = exec::capture(command.current_dir(workspace.root()))?;
    Ok(vec![Output {
        path: "spec/openapi.json".to_owned(),
        contents,
    }])
}
