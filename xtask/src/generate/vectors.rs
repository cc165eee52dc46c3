//! The test vectors under `spec/vectors`, made by the testkit.
//!
//! By a program of its own, so that this one can be built when the testkit can't.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Output;
use crate::workspace::Workspace;

const FOLDER: &str = "spec/vectors";

pub(crate) fn files(workspace: &Workspace) -> Result<Vec<Output>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--package",
            "semel-testkit",
            "--bin",
            "semel-vectors",
        ])
        .current_dir(workspace.path("."))
        .output()
        .context("could not start cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "semel-vectors failed:\n{said}");
    let files: BTreeMap<String, String> = serde_json::from_slice(&output.stdout)?;
    let output = |(name, contents)| Output {
        path: format!("{FOLDER}/{name}"),
        contents,
    };
    Ok(files.into_iter().map(output).collect())
}
