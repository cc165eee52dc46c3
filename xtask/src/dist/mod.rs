//! `cargo xtask dist`: the packages that carry the program, built into `target/dist`, then installed from there and tried.
//!
//! | file | is |
//! |---|---|
//! | `build` | the portable program, linked against an old glibc |
//! | `payload` | what every package carries beside the program: manual pages, completions, licences |
//! | `archive` | the tarball, the installer script and the checksums |
//! | `debian` | the Debian package |
//! | `wheel` | the Python wheel |
//! | `npm` | the npm packages |
//! | `trial` | installs each package in an empty place and uses it |

mod archive;
mod build;
mod debian;
mod npm;
mod payload;
mod trial;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use crate::table::{seconds, table};
use crate::time::Stopwatch;
use crate::workspace::Workspace;
use crate::{exec, programs, sbom};

/// What to pack.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Pack this program instead of building the portable one. Such packages are for trials only.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Do not install and try the packages.
    #[arg(long)]
    untried: bool,
}

/// Where packages come from and go to.
struct Release {
    root: PathBuf,
    /// Where packages are put.
    folder: PathBuf,
    program: PathBuf,
    version: String,
    /// How hard archives are compressed: those of a trial are not handed out.
    level: u8,
    /// The oldest glibc that the program runs on, as Python's platform tag has it: `2_17`.
    glibc: String,
}

/// One package, and what became of its trial.
#[derive(Debug, Serialize)]
struct Package {
    file: String,
    bytes: u64,
    /// Whether it was installed and used; `None` where that was not asked for.
    tried: Option<bool>,
}

/// Builds the packages of `options`, and tries them.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let program = match &options.program {
        Some(program) => std::path::absolute(program)?,
        None => build::portable(workspace)?,
    };
    let level = if options.program.is_some() { 1 } else { 9 };
    let release = Release::new(workspace, program, level)?;
    sbom::run(workspace)?;
    let payload = payload::collect(&release)?;
    let mut files = vec![
        archive::tarball(&release, &payload)?,
        debian::package(&release, &payload)?,
        wheel::pack(&release)?,
    ];
    files.extend(npm::pack(&release)?);
    files.push(archive::installer(&release)?);
    files.push(archive::materials(&release)?);
    archive::checksums(&release, &files)?;
    let tried = match options.untried {
        true => None,
        false => Some(trial::run(&release)?),
    };
    report(workspace, &release, &files, tried.as_deref(), &watch)
}

/// Packs and tries the program that the tests use.
pub(crate) fn trial(workspace: &Workspace) -> Result<()> {
    let program = programs::debug(workspace, "semel")?;
    let folder = workspace.path("target/dist");
    std::fs::create_dir_all(&folder)?;
    // Without its symbols it has half the size, which matters to every package.
    let stripped = folder.join("semel-stripped");
    let mut strip = Command::new("strip");
    exec::capture(strip.arg("-o").arg(&stripped).arg(program))?;
    let options = Options {
        program: Some(stripped),
        untried: false,
    };
    run(workspace, &options)
}

impl Release {
    fn new(workspace: &Workspace, program: PathBuf, level: u8) -> Result<Self> {
        let folder = workspace.path("target/dist");
        std::fs::create_dir_all(&folder)?;
        let version = exec::capture(Command::new(&program).arg("--version"))?;
        let version = version.split_whitespace().nth(1);
        let version = version.context("the program does not say its version")?;
        Ok(Self {
            root: workspace.root().to_owned(),
            folder,
            version: version.to_owned(),
            glibc: build::oldest_glibc(&program)?,
            program,
            level,
        })
    }

    /// A folder in `target/dist` with nothing in it.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// A file that is kept in the repository for packages.
    fn template(&self, name: &str) -> Result<String> {
        let path = self.root.join("deploy/packages").join(name);
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.replace("{{version}}", &self.version))
    }
}

/// Copies a file, and makes the folders above it. `mode` is what `chmod` takes.
fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(above) = to.parent() {
        std::fs::create_dir_all(above)?;
    }
    std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(std::fs::set_permissions(
        to,
        std::fs::Permissions::from_mode(mode),
    )?)
}

fn report(
    workspace: &Workspace,
    release: &Release,
    files: &[PathBuf],
    tried: Option<&[&str]>,
    watch: &Stopwatch,
) -> Result<()> {
    let mut packages = Vec::new();
    for path in files {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        packages.push(Package {
            bytes: std::fs::metadata(path)?.len(),
            tried: tried.map(|tried| tried.iter().any(|part| file.contains(part))),
            file: file.into_owned(),
        });
    }
    let rows = packages.iter().map(|package| {
        [
            package.file.clone(),
            format!("{:.1} MB", megabytes(package.bytes)),
            match package.tried {
                Some(true) => "installed and used".to_owned(),
                Some(false) => "-".to_owned(),
                None => "not tried".to_owned(),
            },
        ]
    });
    println!("{}", table(&["package", "size", "trial"], rows));
    let size = std::fs::metadata(&release.program)?.len();
    let glibc = release.glibc.replace('_', ".");
    println!(
        "the program has {:.1} MB and needs glibc {glibc} or newer; {}",
        megabytes(size),
        seconds(watch.seconds())
    );
    workspace.write_result(
        "dist",
        &serde_json::json!({
            "version": release.version, "glibc": glibc, "program_bytes": size, "packages": packages,
            "seconds": watch.seconds(),
        }),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes of files, shown with one decimal"
)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
