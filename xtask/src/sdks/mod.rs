//! `cargo xtask sdks`: the packages for Python, TypeScript and Go, checked, tested and built as
//! their users get them.
//!
//! Their tests run the real program on real stores, so `services up redis postgres s3` comes first.
//! What they need besides is installed under `target/sdks`, and beside the TypeScript package,
//! where its tools look for it.

mod go;
mod python;
mod typescript;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;

use crate::workspace::Workspace;
use crate::{exec, programs, services};

/// Which package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Python,
    Typescript,
    Go,
}

/// One package, or all.
pub(crate) fn run(workspace: &Workspace, language: Option<Language>) -> Result<()> {
    let bench = Bench::new(workspace)?;
    match language {
        Some(Language::Python) => python::run(&bench),
        Some(Language::Typescript) => typescript::run(&bench),
        Some(Language::Go) => go::run(&bench),
        None => all(&bench),
    }
}

/// Installs what the packages are checked with, and checks nothing.
pub(crate) fn prepare(workspace: &Workspace) -> Result<()> {
    let tools = workspace.path("target/sdks");
    python::environment(&tools)?;
    go::prepare(&tools, &workspace.path("sdks"))?;
    typescript::install(&workspace.path("sdks"))
}

/// Writes the types that all packages have of `spec/openapi.json`.
pub(crate) fn generate(workspace: &Workspace) -> Result<()> {
    prepare(workspace)?;
    let tools = workspace.path("target/sdks");
    go::generate(&tools, &workspace.path("sdks"))?;
    let environment = python::environment(&tools)?;
    let mut python = Command::new(environment.join("bin/python"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg("tools/generate.py");
    exec::run(python.current_dir(workspace.path("sdks/python")))?;
    let mut node = Command::new("node");
    node.arg("tools/generate.mjs");
    exec::run(node.current_dir(workspace.path("sdks/typescript")))
}

/// Side by side: they wait for other machines and for clocks more than they compute.
fn all(bench: &Bench) -> Result<()> {
    let ended = std::thread::scope(|scope| {
        let runs = [python::run, typescript::run, go::run];
        let started = runs.map(|run| scope.spawn(move || run(bench)));
        started.map(|run| {
            run.join()
                .unwrap_or_else(|_| bail!("the check of a package died"))
        })
    });
    let failed: Vec<String> = ended
        .into_iter()
        .filter_map(|result| result.err().map(|error| format!("{error:#}")))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("; and "));
    Ok(())
}

/// Where things are, and what tests are told.
struct Bench {
    /// What is installed and built.
    folder: PathBuf,
    sources: PathBuf,
    program: PathBuf,
    /// The folder of what is compiled: the program, and the native modules of the packages.
    compiled: PathBuf,
    variables: Vec<(String, String)>,
}

impl Bench {
    fn new(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.path("target/sdks");
        std::fs::create_dir_all(&folder)?;
        let program = programs::debug(workspace, "semel")?;
        let compiled = programs::debug(workspace, "")?;
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
            compiled,
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

    /// Lays a package's native module where the package and its tests find it.
    fn place_module(&self, library: &str, place: &Path) -> Result<()> {
        use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
        let file = format!("{DLL_PREFIX}{library}{DLL_SUFFIX}");
        let module = self.compiled.join(file);
        let place = self.sources.join(place);
        // Written anew and not over the old one, which another process may have loaded.
        let beside = place.with_extension("new");
        std::fs::copy(&module, &beside)
            .and_then(|_| std::fs::rename(&beside, &place))
            .with_context(|| format!("{} can't be copied", module.display()))
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
