//! Prometheus and its `promtool`. A tool that tests start themselves, so nothing is left running
//! here.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::install::Package;
use super::{Instance, Profile, Service};
use crate::exec;

#[derive(Debug)]
pub(crate) struct Prometheus;

const PACKAGES: &[Package] = &[Package {
    name: "prometheus",
    present: || {
        ["prometheus", "promtool"]
            .iter()
            .all(|name| exec::find_program(name).is_some())
    },
}];

impl Service for Prometheus {
    fn profile(&self) -> Profile {
        Profile {
            name: "prometheus",
            needs: &[],
            packages: PACKAGES,
            wheel: None,
            user: None,
            ports: &[],
        }
    }

    fn start(&self, _: &mut Instance<'_>) -> Result<()> {
        Ok(())
    }

    fn healthy(&self, _: &Instance<'_>) -> Result<()> {
        program("promtool").map(drop)
    }

    fn env(&self, _: &Instance<'_>) -> Result<Vec<(String, String)>> {
        Ok(vec![
            ("SEMEL_TEST_PROMETHEUS".to_owned(), program("prometheus")?),
            ("SEMEL_TEST_PROMTOOL".to_owned(), program("promtool")?),
        ])
    }

    fn version(&self, _: &Instance<'_>) -> Result<String> {
        let text = exec::capture(Command::new("promtool").arg("--version"))?;
        let first = text.lines().next().unwrap_or_default();
        let words: Vec<&str> = first.split_whitespace().collect();
        Ok(format!("prometheus {}", words.get(2).unwrap_or(&"?")))
    }
}

fn program(name: &str) -> Result<String> {
    let found = exec::find_program(name).with_context(|| format!("there is no {name}"))?;
    Ok(found.display().to_string())
}
