//! Where the repository is, and where its commands leave their results.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The root of the work tree; every path of every command is made from it.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Finds the root from the place of this crate.
    ///
    /// The variable at run time wins over the one at build time: a binary out of a shared target
    /// folder may have been built from another clone.
    pub(crate) fn find() -> Result<Self> {
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .context("xtask's manifest has no folder above it")?
            .canonicalize()
            .context("cannot resolve the root of the repository")?;
        Ok(Self { root })
    }

    #[cfg(test)]
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Where the result file of the command `name` goes; makes the folder.
    pub(crate) fn result_file(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path("target/xtask");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder.join(format!("{name}.json")))
    }

    /// Writes the machine-readable result of a command.
    pub(crate) fn write_result(&self, name: &str, result: &impl Serialize) -> Result<()> {
        let file = self.result_file(name)?;
        let mut text = serde_json::to_string_pretty(result)?;
        text.push('\n');
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}
