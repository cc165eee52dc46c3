//! `cargo xtask sdks`: the packages for Python and TypeScript, checked, tested and built as their
//! users get them.
//!
//! Their tests run the real program on real stores, so `services up redis postgres s3` comes first. What
//! they need besides is installed under `target/sdks`, and beside the TypeScript package, where its
//! tools look for it.

mod python;
mod typescript;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::workspace::Workspace;
use crate::{exec, programs, services};

/// Which package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Python,
    Typescript,
}

/// One package, or both.
pub(crate) fn run(workspace: &Workspace, language: Option<Language>) -> Result<()> {
    let bench = Bench::new(workspace)?;
    match language {
        Some(Language::Python) => python::run(&bench),
        Some(Language::Typescript) => typescript::run(&bench),
        None => both(&bench),
    }
}

/// Installs what the packages are checked with, and checks nothing.
pub(crate) fn prepare(workspace: &Workspace) -> Result<()> {
    python::environment(&workspace.path("target/sdks"))?;
    typescript::install(&workspace.path("sdks"))
}

/// Writes the types that both packages have of `spec/openapi.json`.
pub(crate) fn generate(workspace: &Workspace) -> Result<()> {
    prepare(workspace)?;
    let environment = python::environment(&workspace.path("target/sdks"))?;
    let mut python = Command::new(environment.join("bin/python"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg("tools/generate.py");
    exec::run(python.current_dir(workspace.path("sdks/python")))?;
    let mut node = Command::new("node");
    node.arg("tools/generate.mjs");
    exec::run(node.current_dir(workspace.path("sdks/typescript")))
}

/// Side by side: both wait for other machines and for clocks more than they compute.
fn both(bench: &Bench) -> Result<()> {
    std::thread::scope(|scope| {
        let python = scope.spawn(|| python::run(bench));
        let typescript = typescript::run(bench);
        let python = python
            .join()
            .unwrap_or_else(|_| bail!("the check of the Python package died"));
        match (python, typescript) {
            (Err(one), Err(other)) => bail!("{one:#}; and {other:#}"),
            (python, typescript) => python.and(typescript),
        }
    })
}

/// Where things are, and what tests are told.
struct Bench {
    /// What is installed and built.
    folder: PathBuf,
    sources: PathBuf,
    program: PathBuf,
    variables: Vec<(String, String)>,
}

impl Bench {
    fn new(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.path("target/sdks");
        std::fs::create_dir_all(&folder)?;
        let program = programs::debug(workspace, "semel")?;
        let mut variables = services::variables(workspace)
            .context("the tests need Redis: `cargo xtask services up redis`")?;
        variables.push((
            "SEMEL_TEST_PROGRAM".to_owned(),
            program.display().to_string(),
        ));
        Ok(Self {
            folder,
            sources: workspace.path("sdks"),
            program,
            variables,
        })
    }

    /// A command in a package's folder, told what its tests need.
    fn command(&self, program: impl AsRef<OsStr>, package: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.sources.join(package))
            .envs(self.variables.iter().cloned());
        command
    }

    /// A folder that has nothing in it.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// The one file in `folder` that ends so.
fn only(folder: &Path, ending: &str) -> Result<PathBuf> {
    let mut found = None;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found = Some(path);
        }
    }
    found.with_context(|| format!("nothing that ends in {ending} was built"))
}
