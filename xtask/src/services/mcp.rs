//! What the tool gateway is tested with: the official Python and TypeScript SDKs. Tests start their
//! servers and clients themselves, so nothing runs here.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::recipes::{NODE_JS, NPM, VENV, folder, for_node, for_python, install};
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
            packages: &[NODE_JS, NPM, VENV],
            wheel: None,
            user: None,
            ports: &[],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let tools = instance.tools();
        install(&folder(&tools, "mcp-python", PYTHON), |beside| {
            instance.say("installing the Python SDK of MCP");
            for_python(beside, PYTHON)
        })?;
        install(&folder(&tools, "mcp-node", NODE), |beside| {
            instance.say("installing the TypeScript SDK of MCP");
            for_node(beside, NODE)
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
