//! The configuration's schema and its page, made by the command that reads it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Output;
use crate::workspace::Workspace;

const FILES: [(&str, &str); 2] = [
    ("schema", "spec/config.schema.json"),
    ("reference", "docs/config.md"),
];

pub(crate) fn files(workspace: &Workspace) -> Result<Vec<Output>> {
    let make = |(word, path): (&str, &str)| {
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--package", "semel-cli", "--"])
            .args(["config", word])
            .current_dir(workspace.path("."))
            .output()
            .context("could not start cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "semel config {word} failed:\n{said}"
        );
        Ok(Output {
            path: path.to_owned(),
            contents: String::from_utf8(output.stdout)?,
        })
    };
    FILES.into_iter().map(make).collect()
}
