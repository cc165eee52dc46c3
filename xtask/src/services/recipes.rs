//! What the recipes are tested with: FastAPI, Express and nginx. Tests start these themselves, so
//! nothing runs here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::install::Package;
use super::{Instance, Profile, Service};
use crate::exec;

/// Which packages, as the examples name them for their readers.
const PYTHON: &str = include_str!("../../../examples/sidecar/fastapi/requirements.txt");
const EXPRESS: &str = include_str!("../../../examples/sidecar/express/package.json");

/// What is installed is named by what was asked for: another version is another folder.
pub(crate) fn folder(tools: &Path, name: &str, wanted: &str) -> PathBuf {
    let sum = wanted.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    tools.join(format!("{name}-{sum:016x}"))
}

pub(crate) const NODE_JS: Package = Package {
    name: "nodejs",
    present: || exec::find_program("node").is_some(),
};

pub(crate) const NPM: Package = Package {
    name: "npm",
    present: || exec::find_program("npm").is_some(),
};

pub(crate) const VENV: Package = Package {
    name: "python3-venv",
    present: || exec::capture(Command::new("python3").args(["-c", "import ensurepip"])).is_ok(),
};

fn nginx() -> Option<PathBuf> {
    exec::find_program("nginx")
}

/// Programs without a server of their own.
#[derive(Debug)]
pub(crate) struct Recipes;

impl Service for Recipes {
    fn profile(&self) -> Profile {
        Profile {
            name: "recipes",
            needs: &[],
            packages: &[
                Package {
                    name: "nginx-light",
                    present: || nginx().is_some(),
                },
                NODE_JS,
                NPM,
                VENV,
            ],
            wheel: None,
            user: None,
            ports: &[],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let tools = instance.tools();
        install(&folder(&tools, "fastapi", PYTHON), |beside| {
            instance.say("installing FastAPI");
            for_python(beside, PYTHON)
        })?;
        install(&folder(&tools, "express", EXPRESS), |beside| {
            instance.say("installing Express");
            for_node(beside, EXPRESS)
        })
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        self.version(instance).map(drop)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let tools = std::path::absolute(instance.tools())?;
        let pair = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
        let python = folder(&tools, "fastapi", PYTHON).join("bin/python");
        Ok(vec![
            pair("SEMEL_TEST_PYTHON", &python),
            pair("SEMEL_TEST_EXPRESS", &folder(&tools, "express", EXPRESS)),
            pair("SEMEL_TEST_NGINX", &nginx().context("no nginx")?),
        ])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let tools = instance.tools();
        let python = folder(&tools, "fastapi", PYTHON).join("bin/python");
        let said = "import fastapi, uvicorn; print(fastapi.__version__)";
        let fastapi = exec::capture(Command::new(python).args(["-c", said]))?;
        let express = folder(&tools, "express", EXPRESS).join("node_modules/express");
        ensure!(express.is_dir(), "Express is not installed");
        Ok(format!("FastAPI {}, Express, nginx", fastapi.trim()))
    }
}

/// A mark in the folder says that it is whole: a virtual environment can't be moved into place when
/// it is done.
pub(crate) fn install(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let whole = folder.join("whole");
    if whole.is_file() {
        return Ok(());
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    let folder = std::path::absolute(folder)?;
    fill(&folder).with_context(|| format!("cannot fill {}", folder.display()))?;
    Ok(std::fs::write(whole, "")?)
}

/// A virtual environment with what `requirements` lists.
pub(crate) fn for_python(folder: &Path, requirements: &str) -> Result<()> {
    exec::capture(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let list = folder.join("requirements.txt");
    std::fs::write(&list, requirements)?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "--disable-pip-version-check", "install"]);
    exec::capture(pip.args(["--quiet", "-r"]).arg(&list)).map(drop)
}

/// The modules that `package` (a `package.json`) asks for.
pub(crate) fn for_node(folder: &Path, package: &str) -> Result<()> {
    std::fs::write(folder.join("package.json"), package)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]);
    exec::capture(npm.current_dir(folder)).map(drop)
}
