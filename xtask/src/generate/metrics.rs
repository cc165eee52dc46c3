//! `docs/metrics.md`: the table of metrics, as the server has it.

use anyhow::Result;

use super::Output;
use crate::exec;
use crate::workspace::Workspace;

pub(crate) fn page(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = exec::cargo();
    command.args(["run", "--quiet", "--package", "semel-server"]);
    command.args(["--example", "metrics"]);
    let contents = exec::capture(command.current_dir(workspace.root()))?;
    Ok(vec![Output {
        path: "docs/metrics.md".to_owned(),
        contents,
    }])
}
