//! What the tool gateway is tested with: the official Python and TypeScript SDKs. Tests start their servers and clients
//! themselves, so nothing runs here.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::install::Package;
use super::recipes::{folder, install};
use super::{Instance, Profile, Service};
use crate::exec;

/// Which packages, as the tests name them.
const PYTHON: &str = include_str!("../../../tests/mcp/requirements.txt");
const NODE: &str = include_str!("../../../tests/mcp/package.json");

/// SDKs without a server of their own.
#[derive(Debug)]
pub(crate) struct Mcp;

impl Service for Mcp {
    fn profile(&self) -> Profile {
        Profile {
            name: "mcp",
            needs: &[],
            packages: &[
                Package {
                    name: "nodejs",
                    present: || exec::find_program("node").is_some(),
                },
                Package {
                    name: "npm",
                    present: || exec::find_program("npm").is_some(),
                },
                Package {
                    name: "python3-venv",
                    present: || {
                        exec::capture(Command::new("python3").args(["-c", "import ensurepip"]))
                            .is_ok()
                    },
                },
            ],
            wheel: None,
            user: None,
            ports: &[],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let tools = instance.tools();
        install(&folder(&tools, "mcp-python", PYTHON), |beside| {
            instance.say("installing the Python SDK of MCP");
            exec::capture(Command::new("python3").args(["-m", "venv"]).arg(beside))?;
            let list = beside.join("requirements.txt");
            std::fs::write(&list, PYTHON)?;
            let mut pip = Command::new(beside.join("bin/python"));
            pip.args(["-m", "pip", "--disable-pip-version-check", "install"]);
            exec::capture(pip.args(["--quiet", "-r"]).arg(&list)).map(drop)
        })?;
        install(&folder(&tools, "mcp-node", NODE), |beside| {
            instance.say("installing the TypeScript SDK of MCP");
            std::fs::write(beside.join("package.json"), NODE)?;
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]);
            exec::capture(npm.current_dir(beside)).map(drop)
        })
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        self.version(instance).map(drop)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let tools = std::path::absolute(instance.tools())?;
        let pair = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
        let python = folder(&tools, "mcp-python", PYTHON).join("bin/python");
        Ok(vec![
            pair("SEMEL_TEST_MCP_PYTHON", &python),
            pair("SEMEL_TEST_MCP_NODE", &folder(&tools, "mcp-node", NODE)),
        ])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let tools = instance.tools();
        let python = folder(&tools, "mcp-python", PYTHON).join("bin/python");
        let said = "import importlib.metadata as m, mcp.server; print(m.version('mcp'))";
        let version = exec::capture(Command::new(python).args(["-c", said]))?;
        let sdk = folder(&tools, "mcp-node", NODE).join("node_modules/@modelcontextprotocol/sdk");
        ensure!(sdk.is_dir(), "the TypeScript SDK is not installed");
        Ok(format!("Python {}, TypeScript", version.trim()))
    }
}
