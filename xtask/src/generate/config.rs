//! The JSON schema and the reference page of the configuration.

use std::process::Command;

use anyhow::Result;

use super::Output;
use crate::workspace::Workspace;
use crate::{exec, programs};

const FILES: [(&str, &str); 2] = [
    ("schema", "spec/config.schema.json"),
    ("reference", "docs/config.md"),
];

pub(crate) fn files(workspace: &Workspace) -> Result<Vec<Output>> {
    let program = programs::debug(workspace, "semel")?;
    let make = |(word, path): (&str, &str)| {
        let mut command = Command::new(&program);
        let contents = exec::capture(command.args(["config", word]))?;
        Ok(Output {
            path: path.to_owned(),
            contents,
        })
    };
    FILES.into_iter().map(make).collect()
}
