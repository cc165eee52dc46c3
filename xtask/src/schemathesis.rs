//! `cargo xtask schemathesis`: both APIs, tested from outside by what their OpenAPI document says.
//!
//! Starts a real server on a free loopback port and ends it afterwards. The tool comes from the
//! Python package index into a virtual environment under `target`.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::workspace::Workspace;
use crate::{exec, programs};

/// Which version: another may check other things.
const VERSION: &str = "4.32.5";

/// The one token of the server that is tested. It listens on loopback, for as long as the test
/// runs.
const TOKEN: &str = "a-token-for-this-test-alone";

/// `cargo xtask schemathesis`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many generated requests for each operation, besides those at the bounds.
    #[arg(long, default_value_t = 10)]
    examples: u32,
    /// Where the random numbers start; the same seed gives the same requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The store behind the server.
    #[arg(long, default_value = "memory://")]
    store: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            examples: 10,
            seed: 1,
            store: "memory://".to_owned(),
        }
    }
}

/// A server that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let tool = install(workspace)?;
    let (_server, address) = start(workspace, &options.store)?;
    let mut command = Command::new(tool);
    command
        .arg("--config-file")
        .arg(workspace.path("spec/schemathesis.toml"));
    command.arg("run").arg(workspace.path("spec/openapi.json"));
    command.args(["--url", &address, "--checks", "all", "--no-color"]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    // A stream has no end that could be waited for; the server's own tests have it.
    command.args([
        "--exclude-path",
        "/admin/v1/events",
        "--request-timeout",
        "10",
    ]);
    if options.store.starts_with("memory:") {
        // There is no queue of jobs in memory; `--store postgres://…` has one.
        command.args(["--exclude-path-regex", "^/mesh"]);
    }
    command.args(["--max-examples", &options.examples.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    // It keeps failures it has found in its working folder, to try them first the next time.
    exec::run(command.current_dir(workspace.path("target/schemathesis")))
}

/// The program, installed unless it is there already.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    let environment = workspace.path("target/schemathesis").join(VERSION);
    let program = environment.join("bin/schemathesis");
    if program.is_file() {
        return Ok(program);
    }
    println!("installing schemathesis {VERSION}");
    let mut venv = Command::new("python3");
    exec::capture(venv.args(["-m", "venv"]).arg(&environment))
        .context("needs Python with its venv module (Debian: python3-venv)")?;
    let mut pip = Command::new(environment.join("bin/pip"));
    exec::capture(pip.args(["install", "--quiet", &format!("schemathesis=={VERSION}")]))?;
    Ok(program)
}

/// Starts the server; answers with its address.
fn start(workspace: &Workspace, store: &str) -> Result<(Server, String)> {
    let mut command = Command::new(programs::debug(workspace, "examples/apis")?);
    command.args(["127.0.0.1:0", store, TOKEN]);
    command
        .current_dir(workspace.root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let child = command.spawn().context("cannot start the server")?;
    let mut server = Server(child);
    let output = server.0.stdout.take().context("the server's output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().strip_prefix("listening on ");
    let address = address.context("the server did not start")?.to_owned();
    Ok((server, address))
}
