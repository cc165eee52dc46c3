//! The library that makes a process believe another time. Tests load it themselves; nothing runs
//! here.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::install::Package;
use super::{Instance, Profile, Service};

#[derive(Debug)]
pub(crate) struct FakeTime;

const PACKAGES: &[Package] = &[Package {
    name: "faketime",
    present: || library().is_some(),
}];

impl Service for FakeTime {
    fn profile(&self) -> Profile {
        Profile {
            name: "faketime",
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
        library().map(drop).context("there is no libfaketime")
    }

    fn env(&self, _: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let library = library().context("there is no libfaketime")?;
        let library = library.display().to_string();
        Ok(vec![("SEMEL_TEST_FAKETIME".to_owned(), library)])
    }

    fn version(&self, _: &Instance<'_>) -> Result<String> {
        Ok("libfaketime".to_owned())
    }
}

/// Where Debian puts it.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    let library = |folder: std::fs::DirEntry| folder.path().join("faketime/libfaketime.so.1");
    folders
        .filter_map(|folder| folder.ok().map(library))
        .find(|path| path.is_file())
}
