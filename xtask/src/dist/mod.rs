//! `cargo xtask dist`: the packages that carry the program, built into `target/dist`, then
//! installed from there and tried.
//!
//! | file | is |
//! |---|---|
//! | `build` | the portable program, linked against an old glibc |
//! | `payload` | what every package carries beside the program: manual pages, completions, licences |
//! | `archive` | the tarball, the installer script and the checksums |
//! | `debian` | the Debian package |
//! | `wheel` | the Python wheel |
//! | `npm` | the npm packages |
//! | `page` | the figures in `docs/platforms.md` |
//! | `trial` | installs each package in an empty place and uses it |
//! | `clean_room` | the same in an old Debian without Rust, by the README's words, against the clock |

mod archive;
mod build;
mod clean_room;
mod debian;
mod npm;
mod page;
mod payload;
mod trial;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use crate::table::{seconds, table};
use crate::workspace::Workspace;
use crate::{exec, programs, sbom};
use semel_devservers::time::Stopwatch;

/// What to pack.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Pack this program instead of building the portable one. Such packages are for trials only:
    /// they go to `target/dist-trial`.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Try the given program on Debian 11, too.
    #[arg(long, requires = "program", conflicts_with = "untried")]
    clean_room: bool,
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

/// What a run of this command found.
#[derive(Debug, Serialize)]
struct Figures {
    version: String,
    /// The oldest glibc that the program runs on.
    glibc: String,
    program_bytes: u64,
    packages: Vec<Package>,
    first_replays: Vec<FirstReplay>,
    seconds: f64,
}

/// How long it takes from an empty folder to the first replayed answer.
#[derive(Debug, Serialize)]
struct FirstReplay {
    package: &'static str,
    seconds: f64,
}

/// Where packages are put, and those of a program that is not handed out.
const FOLDER: &str = "target/dist";
const TRIAL_FOLDER: &str = "target/dist-trial";

/// Builds the packages of `options`, and tries them.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let program = match &options.program {
        Some(program) => std::path::absolute(program)?,
        None => build::portable(workspace)?,
    };
    let is_trial = options.program.is_some();
    let release = Release::new(workspace, program, is_trial)?;
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
    // A program that was not built to run there need not.
    let first_replays = match !options.untried && (!is_trial || options.clean_room) {
        true => clean_room::run(workspace, &release)?,
        false => Vec::new(),
    };
    let figures = Figures {
        version: release.version.clone(),
        glibc: release.glibc.replace('_', "."),
        program_bytes: std::fs::metadata(&release.program)?.len(),
        packages: packages(&files, tried.as_deref())?,
        first_replays,
        seconds: watch.seconds(),
    };
    figures.show();
    workspace.write_result(if is_trial { "dist-trial" } else { "dist" }, &figures)?;
    match is_trial || figures.first_replays.is_empty() {
        true => Ok(()),
        false => page::write(workspace, &figures),
    }
}

/// Packs and tries the program that the tests use.
pub(crate) fn trial(workspace: &Workspace) -> Result<()> {
    let program = programs::debug(workspace, "semel")?;
    let folder = workspace.path(TRIAL_FOLDER);
    std::fs::create_dir_all(&folder)?;
    // Without its symbols it has half the size, which matters to every package.
    let stripped = folder.join("semel-stripped");
    let mut strip = Command::new("strip");
    exec::capture(strip.arg("-o").arg(&stripped).arg(program))?;
    let options = Options {
        program: Some(stripped),
        ..Options::default()
    };
    run(workspace, &options)
}

impl Release {
    fn new(workspace: &Workspace, program: PathBuf, is_trial: bool) -> Result<Self> {
        let folder = workspace.path(if is_trial { TRIAL_FOLDER } else { FOLDER });
        std::fs::create_dir_all(&folder)?;
        remove_packages(&folder)?;
        let version = exec::capture(Command::new(&program).arg("--version"))?;
        let version = version.split_whitespace().nth(1);
        let version = version.context("the program does not say its version")?;
        Ok(Self {
            root: workspace.root().to_owned(),
            folder,
            version: version.to_owned(),
            glibc: build::oldest_glibc(&program)?,
            program,
            level: if is_trial { 1 } else { 9 },
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

/// Removes the packages of an earlier run: `*.whl` must name one file. Others of the folder are
/// cargo's own.
fn remove_packages(folder: &Path) -> Result<()> {
    const ENDINGS: [&str; 5] = [".whl", ".tgz", ".tar.gz", ".deb", ".cdx.json"];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn packages(files: &[PathBuf], tried: Option<&[&str]>) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for path in files {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        packages.push(Package {
            bytes: std::fs::metadata(path)?.len(),
            tried: tried.map(|tried| tried.iter().any(|part| file.contains(part))),
            file: file.into_owned(),
        });
    }
    Ok(packages)
}

impl Figures {
    fn show(&self) {
        let rows = self.packages.iter().map(|package| {
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
        if !self.first_replays.is_empty() {
            let rows = self.first_replays.iter();
            let rows = rows.map(|one| [one.package.to_owned(), format!("{:.1} s", one.seconds)]);
            println!(
                "{}",
                table(&["on Debian 11", "first replayed answer"], rows)
            );
        }
        println!(
            "the program has {:.1} MB and needs glibc {} or newer; {}",
            megabytes(self.program_bytes),
            self.glibc,
            seconds(self.seconds)
        );
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes of files, shown with one decimal"
)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
