//! `docs/metrics.md` and `docs/event-fields.md`: the tables of metrics and of the fields of events.

use std::process::Command;

use anyhow::Result;

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

pub(crate) fn page(workspace: &Workspace) -> Result<Vec<Output>> {
    let program = programs::debug(workspace, "examples/metrics")?;
    let print = |what: &str, path: &str| -> Result<Output> {
        let mut command = Command::new(&program);
        let contents = exec::capture(command.arg(what).current_dir(workspace.root()))?;
        let path = path.to_owned();
        Ok(Output { path, contents })
    };
    Ok(vec![
        print("metrics", "docs/metrics.md")?,
        print("fields", "docs/event-fields.md")?,
    ])
}
