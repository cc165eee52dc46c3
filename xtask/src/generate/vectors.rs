//! The test vectors under `spec/vectors`, made by the testkit.
//!
//! By a program of its own, so that this one can be built when the testkit can't.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

const FOLDER: &str = "spec/vectors";

pub(crate) fn files(workspace: &Workspace) -> Result<Vec<Output>> {
    let mut command = Command::new(programs::debug(workspace, "semel-vectors")?);
    let printed = exec::capture(command.current_dir(workspace.root()))?;
    let files: BTreeMap<String, String> = serde_json::from_str(&printed)?;
    let output = |(name, contents)| Output {
        path: format!("{FOLDER}/{name}"),
        contents,
    };
    Ok(files.into_iter().map(output).collect())
}
