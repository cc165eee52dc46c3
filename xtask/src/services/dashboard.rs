//! What the dashboard is tested with: Chromium, and Playwright to drive it. Tests start these
//! themselves, so nothing runs here.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::install::Package;
use super::recipes::{NODE_JS, NPM, folder, install};
use super::{Instance, Profile, Service};
use crate::exec;

/// Which package, with the digest of what has to arrive.
const WANTED: &str = include_str!("../../../tests/dashboard/package.json");
const LOCK: &str = include_str!("../../../tests/dashboard/package-lock.json");

fn chromium() -> Option<PathBuf> {
    exec::find_program("chromium")
}

fn playwright(instance: &Instance<'_>) -> PathBuf {
    folder(&instance.tools(), "playwright", LOCK)
}

/// Programs without a server of their own.
#[derive(Debug)]
pub(crate) struct Dashboard;

impl Service for Dashboard {
    fn profile(&self) -> Profile {
        Profile {
            name: "dashboard",
            needs: &[],
            packages: &[
                Package {
                    name: "chromium",
                    present: || chromium().is_some(),
                },
                NODE_JS,
                NPM,
            ],
            wheel: None,
            user: None,
            ports: &[],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        install(&playwright(instance), |beside| {
            instance.say("installing Playwright");
            std::fs::write(beside.join("package.json"), WANTED)?;
            std::fs::write(beside.join("package-lock.json"), LOCK)?;
            let mut npm = Command::new("npm");
            npm.args(["ci", "--no-audit", "--no-fund"]);
            exec::capture(npm.current_dir(beside)).map(drop)
        })
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let module = playwright(instance).join("node_modules/playwright-core");
        ensure!(module.is_dir(), "Playwright is not installed");
        self.version(instance).map(drop)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let module = std::path::absolute(playwright(instance))?;
        let browser = chromium().context("no chromium")?;
        let pair = |name: &str, path: PathBuf| (name.to_owned(), path.display().to_string());
        Ok(vec![
            pair("SEMEL_TEST_PLAYWRIGHT", module),
            pair("SEMEL_TEST_CHROMIUM", browser),
        ])
    }

    fn version(&self, _: &Instance<'_>) -> Result<String> {
        let browser = chromium().context("no chromium")?;
        let text = exec::capture(Command::new(browser).arg("--version"))?;
        let words: Vec<&str> = text.split_whitespace().take(2).collect();
        Ok(words.join(" "))
    }
}
