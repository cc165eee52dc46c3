//! `spec/openapi.json`: both APIs of the server, as its routes describe themselves.
//!
//! By a program of its own, so that this one can be built when the server can't.

use anyhow::Result;

use super::Output;
use crate::exec;
use crate::workspace::Workspace;

pub(crate) fn document(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = exec::cargo();
    command.args(["run", "--quiet", "--package", "semel-server"]);
    command.args(["--example", "openapi"]);
    let contents = exec::capture(command.current_dir(workspace.root()))?;
    Ok(vec![Output {
        path: "spec/openapi.json".to_owned(),
        contents,
    }])
}
